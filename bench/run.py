"""Measures: `make bench` and `make bench-whole`."""

import sys

from bench.questions.run import main

if __name__ == "__main__":
    sys.exit(main())
