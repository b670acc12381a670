"""`python -m bench.reached`."""

import sys

from bench.faults.reached import main

if __name__ == "__main__":
    sys.exit(main())
