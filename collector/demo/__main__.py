"""`python -m collector.demo OUTPUT`."""

import sys

from collector.demo import run

if __name__ == "__main__":
    sys.exit(run())
