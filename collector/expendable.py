"""`python -m collector.expendable MODULE …` runs `python -m MODULE …` as what the system ends first where memory is full.

It would end the largest process otherwise, which is the training that ours belongs to. Said before anything of ours is
imported: by then the memory that is too much may be asked for already.
"""

import os
import runpy
import sys
from contextlib import suppress
from pathlib import Path


def go_first() -> None:
    """Have the system end this process before any other; where there is no such order nothing happens."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def build_environment() -> dict[str, str]:
    """Return the environment of a process of ours that finds this very package, and computes on one thread."""
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    go_first()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
