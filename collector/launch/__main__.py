"""`python -m collector.launch …` is the same as `stepscope run …`."""

import sys

from collector.launch import main

if __name__ == "__main__":
    sys.exit(main())
