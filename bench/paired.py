"""Compares the CPU time of two checkouts."""

import sys

from bench.questions.paired import main

if __name__ == "__main__":
    sys.exit(main())
