"""Where the code of the base lies: the words and the environment that make Python load it from there.

The script is that of the other checkout, so what lies beside it is imported from there, too. So is what Python finds by
a folder of the user's checkout: on PYTHONPATH, by an editable install, or, for a module, by the current folder.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from collector.format.schema.errors import UsageError
from collector.launch.interpreter import read_interpreter
from collector.launch.launchers import find_launcher, read_workers
from collector.launch.origin import VARIABLE
from collector.launch.pairs.checkout import Checkout, name_some
from collector.launch.script import MODULE_FOLDER_VARIABLE, Program

_MOST_NAMED = 3


@dataclass(frozen=True)
class Placed:
    """The script or module that a command line runs, and which of its words names it; `path` is real, for a module the
    current folder."""

    position: int
    name: str
    is_module: bool
    path: Path


def find_script(program: Program) -> Placed:
    """Find what is run, below an interpreter or a launcher. Raises UsageError if there is none."""
    interpreter = read_interpreter(program)
    inner = program if interpreter is None else interpreter.program
    launcher = find_launcher(inner)
    if launcher is None:
        name, is_module, behind = inner.name, inner.is_module, len(inner.arguments)
    else:
        workers = read_workers(launcher, inner)
        name, is_module, behind = workers.script, workers.is_module, len(workers.arguments)
    path = Path(os.path.realpath(os.getcwd() if is_module else name))
    if not is_module and not path.is_file():
        raise UsageError(f"the script {name} cannot be read; give the path of a Python file")
    return Placed(len(program.words) - behind - 1, name, is_module, path)


def place_words(program: Program, script: Placed, base: Checkout) -> list[str]:
    """Return the words of the command with the script of the base in place of the user's."""
    words = program.words
    if not script.is_module:
        words[script.position] = str(base.place(script.path))
    return words


def place_environment(environment: Mapping[str, str], script: Placed, base: Checkout) -> dict[str, str]:
    """Return the environment in which Python finds the base's code before the user's."""
    entries = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    placed = [_place_entry(Path(entry), base) or entry for entry in entries]
    placed += [folder for folder in _find_editable(base) if folder not in placed]
    note = {"from": str(base.root), "to": str(base.code), "note": str(base.note_file)}
    found = {**environment, VARIABLE: json.dumps(note)}
    if placed:
        found["PYTHONPATH"] = os.pathsep.join(placed)
    if script.is_module:
        found[MODULE_FOLDER_VARIABLE] = str(base.place(script.path))
    return found


def _place_entry(folder: Path, base: Checkout) -> str:
    """Return where a folder of the user's checkout is in the base; "" for one that is elsewhere or not there."""
    real = Path(os.path.realpath(folder))
    if not real.is_relative_to(base.root) or real.is_relative_to(os.path.realpath(sys.prefix)):
        return ""
    there = base.place(real)
    return str(there) if there.is_dir() else ""


def _find_editable(base: Checkout) -> Iterator[str]:
    """Yield the base's folders that stand for those by which editable installs find the user's packages."""
    given = {os.path.realpath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    # The first entry is where this process was started from; the base's script has its own.
    found = [Path(entry) for entry in sys.path[1:] if entry and os.path.realpath(entry) not in given]
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__"):  # the finder that setuptools installs
            mapping = getattr(module, "MAPPING", None)
            found += [Path(path).parent for path in mapping.values()] if isinstance(mapping, dict) else []
    for folder in dict.fromkeys(found):
        if there := _place_entry(folder, base):
            yield there


def read_borrowed(environment: Mapping[str, str]) -> str:
    """Return the modules that a run of the base took from the user's checkout, as text; "" for none."""
    text = environment.get(VARIABLE, "")
    if not text:
        return ""
    try:
        lines = Path(json.loads(text)["note"]).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ""
    return name_some(list(dict.fromkeys(lines)), _MOST_NAMED)
