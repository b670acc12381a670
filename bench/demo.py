"""`make demo`."""

import sys

from bench.faults.demo import main

if __name__ == "__main__":
    sys.exit(main())
