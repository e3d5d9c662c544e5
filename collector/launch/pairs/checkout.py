"""The code of the base: a git revision in a worktree of its own or a second checkout, and what makes Python load it.

The script is that of the other checkout, so what lies beside it is imported from there, too. So is what Python finds by
a folder of the user's checkout: on PYTHONPATH, by an editable install, or, for a module, by the current folder.
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

from collector.format.schema.errors import UsageError
from collector.format.schema.removal import scratch_folder
from collector.launch.activation import DEFAULT_PATH
from collector.launch.interpreter import read_interpreter
from collector.launch.launchers import find_launcher, read_workers
from collector.launch.origin import VARIABLE
from collector.launch.pairs.worktree import add_worktree, ask_git, guard_worktree
from collector.launch.script import MODULE_FOLDER_VARIABLE, Program

NOTE_FILE = "borrowed.txt"
BASE, NEW = "base", "new"
"""The folders of the runs of each side, below that of a comparison."""
_CACHES = ("__pycache__", "node_modules", "venv", DEFAULT_PATH)


@dataclass(frozen=True)
class Checkout:
    """`root` is the user's checkout, `code` the base's; both are real paths. `commit` is empty for a folder.

    `note_file` is where processes of the base say what they took from the user's checkout.
    """

    root: Path
    code: Path
    label: str
    note_file: Path
    commit: str = ""

    def place(self, path: Path) -> Path:
        """Return where a path of the user's checkout is in that of the base."""
        return self.code / path.relative_to(self.root)

    def describe_tree(self) -> str:
        """Name what the base is compared with."""
        head = ask_git(self.root, "rev-parse", "--short", "HEAD")
        if head is None:
            return str(self.root)
        changed = " with changes" if ask_git(self.root, "diff", "--quiet", "HEAD") is None else ""
        return f"the working tree ({head}{changed})"

    def list_notes(self, outputs: Collection[Path] = ()) -> list[str]:
        """Say what a user should know of the base's code: that it is no other, and what is not beside it.

        What is ignored is not named, nor are `outputs`, the files and folders that a comparison writes itself.
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
        """Return what changes when a Python file of the user's checkout that git tracks does."""
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
    """Say whether this comparison writes a path, or all that is in it, or an earlier one has written it."""
    if path in outputs or ((path / NEW).is_dir() and any(path.glob(f"{BASE}/{BASE}-*/"))):
        return True
    if not any(output.is_relative_to(path) for output in outputs):
        return False
    return all(_is_written(child, outputs) for child in path.iterdir())


def find_root(path: Path) -> Path:
    """Return the checkout that a file or folder belongs to; without git the current folder, or that of the file."""
    folder = path if path.is_dir() else path.parent
    top = ask_git(folder, "rev-parse", "--show-toplevel")
    if top:
        return Path(os.path.realpath(top))
    here = Path(os.path.realpath(os.getcwd()))
    return here if path.is_relative_to(here) else folder


@contextmanager
def open_base(against: str, path: Path) -> Iterator[Checkout]:
    """Give the checkout in which the base's code lies while the block runs; `path` is what is to be run from it.

    A word that names a revision is that, also where a folder has the name: `./name` is the folder. UsageError if it is
    neither, or if there is no such script.
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
    """Name the first few, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


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
    return _name_some(list(dict.fromkeys(lines)), 3)
