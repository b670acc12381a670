"""`make campaign`."""

import sys

from bench.faults.campaign import main

if __name__ == "__main__":
    sys.exit(main())
