"""`python -m collector.demo OUTPUT` records the demo."""

import sys

from collector.demo import run

if __name__ == "__main__":
    sys.exit(run())
