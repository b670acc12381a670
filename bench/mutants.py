"""`make mutants`."""

import sys

from bench.faults.mutants import main

if __name__ == "__main__":
    sys.exit(main())
