"""Plays random stories of the simulator."""

import sys

from bench.faults.stories import main

if __name__ == "__main__":
    sys.exit(main())
