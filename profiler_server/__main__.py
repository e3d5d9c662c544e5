"""`python -m profiler_server …` is `stepscope …`."""

import sys

from profiler_server.entry import run_stepscope

if __name__ == "__main__":
    sys.exit(run_stepscope())
