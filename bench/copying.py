"""Copies one topic and prints the cost. Keep name and arguments: `bench.paired` runs it in other checkouts."""

import sys

from bench.harness.copying import main

if __name__ == "__main__":
    sys.exit(main())
