"""`python -m collector.expendable MODULE …` runs `python -m MODULE …` as the first process to be killed when memory is
full.

Otherwise the system would kill the largest process, which is the training. The process asks for this before it imports
any of our modules, because the imports may already need too much memory.
"""

import os
import runpy
import sys
from contextlib import suppress
from pathlib import Path


def go_first() -> None:
    """Make the system kill this process first when memory is full. Do nothing on systems that have no such setting."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def build_environment() -> dict[str, str]:
    """Return an environment in which a child process imports this copy of the package and computes on one thread."""
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    go_first()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
