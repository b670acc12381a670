"""Measures the memory that lanes of deleted topics take."""

import sys

from bench.questions.gone_lanes import main

if __name__ == "__main__":
    sys.exit(main())
