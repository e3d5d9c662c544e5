"""Provide the code of the base, a git revision in its own worktree or a second checkout, and make Python load it.

The script runs from the base's checkout, so its neighbouring modules are imported from there. Folders of the user's
checkout on Python's path are replaced too: from PYTHONPATH, from an editable install, or, for a module, the current
folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from collector.environment import DEFAULT_PATH
from collector.format.schema.errors import UsageError
from collector.format.schema.removal import scratch_folder
from collector.git import ask_git
from collector.launch.launchers import find_launcher, read_workers
from collector.launch.origin import VARIABLE
from collector.launch.pairs.worktree import add_worktree, guard_worktree
from collector.launch.script import MODULE_FOLDER_VARIABLE, Program

NOTE_FILE = "borrowed.txt"
BASE, NEW = "base", "new"
"""The folder names for each side's runs, below the comparison's folder."""
_CACHES = ("__pycache__", "node_modules", "venv", DEFAULT_PATH)


@dataclass(frozen=True)
class Checkout:
    """The two checkouts, as real paths: `root` is the user's, `code` the base's. `label` names the base in messages.
    `commit` is "" if the base is a folder.

    Processes of the base write `note_file`, the list of modules loaded from the user's checkout.
    """

    root: Path
    code: Path
    label: str
    note_file: Path
    commit: str = ""

    def place(self, path: Path) -> Path:
        """Return the path in the base that corresponds to a path of the user's checkout."""
        return self.code / path.relative_to(self.root)

    def describe_tree(self) -> str:
        """Return a label for the user's version of the code, which is compared with the base."""
        head = ask_git(self.root, "rev-parse", "--short", "HEAD")
        if head is None:
            return str(self.root)
        changed = " with changes" if ask_git(self.root, "diff", "--quiet", "HEAD") is None else ""
        return f"the working tree ({head}{changed})"

    def list_notes(self, outputs: Collection[Path] = ()) -> list[str]:
        """Return notes on the base's code for the user: whether it equals the user's code, and which files it lacks.

        There are none if the base is a folder. Ignored files are not named, and neither are `outputs`, the comparison's
        own files and folders.
        """
        if not self.commit:
            return []
        notes = []
        if ask_git(self.root, "diff", "--quiet", self.commit) is not None:
            notes.append(f"no file that git tracks differs from {self.label}: what is measured is the noise")
        modules = ask_git(self.code, "config", "--file", ".gitmodules", "--get-regexp", r"\.path$")
        if modules:
            named = [line.partition(" ")[2] for line in modules.splitlines()]
            notes.append(f"submodules are not carried to the base: {_name_some(named)}")
        if untracked := self._list_untracked(outputs):
            notes.append(
                f"files that git does not track are not beside the base's code: {_name_some(untracked)}; a script finds "
                "them by paths from the current folder, which is the same for both"
            )
        return notes

    def read_state(self) -> str:
        """Return a hash that changes when a tracked Python file of the user's checkout changes."""
        answers = (ask_git(self.root, *words) for words in (("rev-parse", "HEAD"), ("diff", "HEAD", "--", "*.py")))
        return hashlib.sha256("\n".join(map(str, answers)).encode("utf-8", "surrogateescape")).hexdigest()

    def _list_untracked(self, outputs: Collection[Path]) -> list[str]:
        words = ("ls-files", "--others", "--exclude-standard", "--directory", "--no-empty-directory")
        listed = ask_git(self.root, *words) or ""
        own = {Path(os.path.realpath(path)) for path in outputs}
        return [
            line
            for line in listed.splitlines()
            if not any(part.startswith(".") or part in _CACHES for part in line.rstrip("/").split("/"))
            and not _is_written(self.root / line, own)
        ]


def _is_written(path: Path, outputs: Collection[Path]) -> bool:
    """Return whether a path, or everything in a folder, was written by this comparison or by an earlier one."""
    if path in outputs or ((path / NEW).is_dir() and any(path.glob(f"{BASE}/{BASE}-*/"))):
        return True
    if not any(output.is_relative_to(path) for output in outputs):
        return False
    return all(_is_written(child, outputs) for child in path.iterdir())


def find_root(path: Path) -> Path:
    """Return the root of the git checkout that holds `path`. Outside of a checkout, return the current folder if it
    holds `path`, else the folder of `path`.
    """
    folder = path if path.is_dir() else path.parent
    top = ask_git(folder, "rev-parse", "--show-toplevel")
    if top:
        return Path(os.path.realpath(top))
    here = Path(os.path.realpath(os.getcwd()))
    return here if path.is_relative_to(here) else folder


@contextmanager
def open_base(against: str, path: Path) -> Iterator[Checkout]:
    """Provide the base's checkout during the block; `path` is the user's script, or folder of a module, to run there.

    `against` is a revision if git knows it, even if a folder has the same name; `./name` is the folder. UsageError if
    it is neither, or if the script does not exist there.
    """
    root = find_root(path)
    is_word = bool(against) and not against.startswith("-")
    commit = ask_git(root, "rev-parse", "--verify", "--quiet", f"{against}^{{commit}}") if is_word else None
    if commit:
        label = against if commit.startswith(against) else f"{against} ({commit[:9]})"
        with guard_worktree(root, root.name or "checkout") as place:
            add_worktree(root, place, commit)
            code = Path(os.path.realpath(place))
            yield _require(Checkout(root, code, label, code.parent / NOTE_FILE, commit), path)
        return
    folder = Path(os.path.realpath(Path(against).expanduser()))
    if not folder.is_dir():
        raise UsageError(
            f"--against {against}: git knows no such revision in {root}, and there is no such folder; "
            "fetch the revision first, or give the path of a second checkout"
        )
    if folder == root:
        raise UsageError(f"--against {against} is the checkout itself; give another one, or a revision")
    with scratch_folder() as own:
        yield _require(Checkout(root, folder, str(folder), own / NOTE_FILE), path)


def _require(base: Checkout, path: Path) -> Checkout:
    there = base.place(path)
    if not there.exists():
        raise UsageError(f"{base.label} has no {path.relative_to(base.root)}; it must run the same script")
    return base


def _name_some(names: list[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


@dataclass(frozen=True)
class Placed:
    """The script or module in a command line; `position` is its index among the words. `path` is the script's real
    path; for a module, the current folder.
    """

    position: int
    name: str
    is_module: bool
    path: Path


def find_script(program: Program) -> Placed:
    """Find the script or module that the program or its launcher runs. Raises UsageError if there is none."""
    launcher = find_launcher(program)
    if launcher is None:
        name, is_module, behind = program.name, program.is_module, len(program.arguments)
    else:
        workers = read_workers(launcher, program)
        name, is_module, behind = workers.script, workers.is_module, len(workers.arguments)
    path = Path(os.path.realpath(os.getcwd() if is_module else name))
    if not is_module and not path.is_file():
        raise UsageError(f"the script {name} cannot be read; give the path of a Python file")
    return Placed(len(program.words) - behind - 1, name, is_module, path)


def place_words(program: Program, script: Placed, base: Checkout) -> list[str]:
    """Return the command's words with the user's script replaced by the base's."""
    words = program.words
    if not script.is_module:
        words[script.position] = str(base.place(script.path))
    return words


def place_environment(environment: Mapping[str, str], script: Placed, base: Checkout) -> dict[str, str]:
    """Return an environment in which Python finds the base's code before the user's code."""
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
    """Return the folder of the base that corresponds to `folder`; "" if `folder` is outside of the user's checkout or
    the base lacks it.
    """
    real = Path(os.path.realpath(folder))
    if not real.is_relative_to(base.root) or real.is_relative_to(os.path.realpath(sys.prefix)):
        return ""
    there = base.place(real)
    return str(there) if there.is_dir() else ""


def _find_editable(base: Checkout) -> Iterator[str]:
    """Yield the base's folders for the user's folders that editable installs put on Python's path."""
    given = {os.path.realpath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    # The first entry is where this process was started from; the base's script has its own.
    found = [Path(entry) for entry in sys.path[1:] if entry and os.path.realpath(entry) not in given]
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__"):  # the finder of a module that setuptools installed as editable
            mapping = getattr(module, "MAPPING", None)
            found += [Path(path).parent for path in mapping.values()] if isinstance(mapping, dict) else []
    for folder in dict.fromkeys(found):
        if there := _place_entry(folder, base):
            yield there


def read_borrowed(environment: Mapping[str, str]) -> str:
    """Return, as text, the modules that a base's run loaded from the user's checkout; "" for none."""
    text = environment.get(VARIABLE, "")
    if not text:
        return ""
    try:
        lines = Path(json.loads(text)["note"]).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ""
    return _name_some(list(dict.fromkeys(lines)), 3)
