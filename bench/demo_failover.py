"""`make demo-failover`."""

import sys

from bench.faults.demo_failover import main

if __name__ == "__main__":
    sys.exit(main())
