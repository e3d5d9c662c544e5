"""Let libkineto take detailed windows on its own thread: it must be told before torch is imported.

The environment says where its daemon is, which the sidecar will be (`collector.sidecar.on_demand`). The variable that
arms is taken back once torch has been imported, so that no child of the training inherits it.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collector.ring.on_demand import CONFIG_FILE, VARIABLE, make_folder, remove_folder

_CONFIG = "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n"
_ARMS = "KINETO_USE_DAEMON"
_VARIABLES = (_ARMS, "KINETO_IPC_SOCKET_DIR", "KINETO_CONFIG")
_TAKEN = (*_VARIABLES, "CUDA_INJECTION64_PATH")
"""Who has set one of these has a daemon or a profiler of his own."""


def arm(options: Mapping[str, Any], environment: Mapping[str, str]) -> Path | None:
    """Tell libkineto where its daemon will be; None if no window would be ordered, or another tool is at work."""
    if not options.get("triggers", True) or options.get("window", "auto") in (None, False):
        return None
    if any(name in environment for name in _TAKEN):
        return None
    try:
        folder = make_folder()
        (folder / CONFIG_FILE).write_text(_CONFIG, encoding="utf-8")
    except OSError:
        return None
    values = ("1", str(folder), str(folder / CONFIG_FILE))
    os.environ.update(zip(_VARIABLES, values, strict=True))
    os.environ["KINETO_ONDEMAND_TRACE_DIR"] = str(folder)
    atexit.register(_remove, folder, os.getpid())
    return folder


def hand_over(folder: Path) -> None:
    """Torch has been imported: take back what arms, and tell the recording that begins now."""
    os.environ.pop(_ARMS, None)  # libkineto reads the others later
    os.environ[VARIABLE] = str(folder)


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        remove_folder(folder)
