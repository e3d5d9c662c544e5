"""`python -m collector.sidecar RANK_FOLDER`."""

import sys

from collector.sidecar.process import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
