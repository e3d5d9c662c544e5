"""Run the sidecar: `python -m collector.sidecar RANK_FOLDER PID [LOG]`. PID is the id of the training process, LOG the
descriptor of its event log if the log is in shared memory.
"""

import sys
from importlib.abc import MetaPathFinder
from typing import Any


class _WithoutPandas(MetaPathFinder):
    """An import hook that hides pandas from pyarrow. Pandas would cost 45 MB and most of the sidecar's start time."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("the sidecar does without pandas", name=fullname)


if __name__ == "__main__":
    sys.meta_path.insert(0, _WithoutPandas())
    from collector.sidecar.process import main

    sys.exit(main(sys.argv[1:]))
