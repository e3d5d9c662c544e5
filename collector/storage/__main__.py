"""`python -m collector.storage RANK_FOLDER URL`."""

import sys

from collector.storage.process import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
