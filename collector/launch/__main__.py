"""`python -m collector.launch …` is the same as `profiler-run …`, for launchers that need a module."""

import sys

from collector.launch import main

if __name__ == "__main__":
    sys.exit(main())
