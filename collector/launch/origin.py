"""Check that a run of the base uses the base's modules. The base is the code that the user's version is compared with.

The check lists modules that Python loaded from the user's checkout instead. Both runs then use the same module, and
the figures do not show it.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Iterator, Mapping

from collector.edge import log_failure
from collector.server import SERVER

PLAN_VARIABLE = "STEPSCOPE_TRIAL_PLAN"
"""The plan of a trial, in the environment of its process."""
VARIABLE = "STEPSCOPE_BASE"
"""JSON: `from` is the user's checkout and `to` the checkout of the base. `note` is the file that lists modules loaded
from the user's checkout."""
_OWN = ("collector", SERVER)


def watch_origin(environment: Mapping[str, str]) -> None:
    """In a process that runs the base: at its end, write the list of modules that came from the user's checkout."""
    text = environment.get(VARIABLE, "")
    if not text:
        return
    with log_failure("where the modules of the base came from is not known"):
        places, owner = json.loads(text), os.getpid()
        atexit.register(lambda: _note_borrowed(places) if os.getpid() == owner else None)


def _note_borrowed(places: Mapping[str, str]) -> None:
    with log_failure("where the modules of the base came from is not known"):
        found = list(_list_borrowed(places["from"], places["to"]))
        if found:
            with open(places["note"], "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write("".join(f"{line}\n" for line in found))


def _list_borrowed(source: str, target: str) -> Iterator[str]:
    skipped = (os.path.realpath(sys.prefix), os.path.realpath(target))
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # Some modules are made in memory and name a file without a folder, such as torch.ops.
        if not isinstance(file, str) or not os.path.isabs(file) or name.partition(".")[0] in _OWN:
            continue
        real = os.path.realpath(file)
        if _is_below(real, source) and not any(_is_below(real, folder) for folder in skipped):
            yield f"{name} ({real})"


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)
