"""`python -m stepscope …` is `stepscope …`, for launchers that need a module, and for flags of Python."""

import sys

from profiler_server.entry import run_stepscope

if __name__ == "__main__":
    sys.exit(run_stepscope())
