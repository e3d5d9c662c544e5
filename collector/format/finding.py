"""Find the runs below a base directory, within limits and without following links; find a run by id or name.

The Python API, the commands and the server share this code.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from collector.format.attempts import find_home, read_run_manifest
from collector.format.schema import layout
from collector.format.schema.errors import ClosedRunError, RunNotFoundError
from collector.format.schema.modes import spell_closed

DEPTH_LIMIT = 8
FOLDER_LIMIT = 50_000
RUN_LIMIT = 10_000
SKIPPED_NAMES = frozenset({"node_modules", "__pycache__", "lost+found"})


@dataclass(frozen=True)
class Scan:
    """The result of a search for runs. `paths` are folders that hold `profiler/run.json`. `refused` pairs each folder
    that was not read in full with the reason.

    `cut` is a sentence on where the search stopped at a limit, empty if the search was complete.
    """

    paths: tuple[Path, ...]
    refused: tuple[tuple[Path, str], ...]
    cut: str


def scan_base(base_dir: Path) -> Scan:
    """Find every run in and below base_dir, nearest first. Links to folders are not followed."""
    paths: list[Path] = []
    refused: list[tuple[Path, str]] = []
    queue = deque([(base_dir, 0)])
    seen, too_deep = 0, False
    while queue and seen < FOLDER_LIMIT and len(paths) < RUN_LIMIT:
        folder, depth = queue.popleft()
        seen += 1
        is_run = _is_run(folder)
        if is_run:
            paths.append(folder)
        try:
            inner, is_odd = _list_folder(folder)
        except PermissionError:
            refused.append((folder, f"{spell_closed(folder)}."))
            continue
        except OSError as error:
            refused.append((folder, f"This folder cannot be listed: {error.strerror or error}."))
            continue
        if is_run is None:
            refused.append((folder, f"{spell_closed(layout.profiler_path(folder))}."))
        if is_odd:
            refused.append((folder, "What is in this folder under names that are not UTF-8 was left out."))
        if depth < DEPTH_LIMIT:
            queue.extend((path, depth + 1) for path in inner)
        else:
            too_deep = too_deep or bool(inner)
    return Scan(tuple(paths), tuple(refused), _explain_cut(bool(queue), too_deep))


def _is_run(folder: Path) -> bool | None:
    """Return whether a folder is a run; None if the user may not look into it."""
    try:
        return stat.S_ISREG(os.stat(layout.run_file(folder)).st_mode)
    except PermissionError:  # which Path.is_file() keeps to itself from Python 3.14 on
        return None
    except (OSError, ValueError):
        return False


def _list_folder(folder: Path) -> tuple[list[Path], bool]:
    """Return the subfolders to search, sorted and without links, and whether any were left out.

    A subfolder is left out if its name cannot be shown on a page or written in an address.
    """
    skipped = {layout.PROFILER_FOLDER, *SKIPPED_NAMES}
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if not entry.name.startswith(".") and entry.name not in skipped]
        inner = [Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False)]
    shown = sorted(path for path in inner if _is_text(path.name))
    return shown, len(shown) < len(inner)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _explain_cut(stopped: bool, too_deep: bool) -> str:
    if stopped:
        return f"The search stopped after {FOLDER_LIMIT:,} folders or {RUN_LIMIT:,} runs; serve a folder further down."
    return f"Folders more than {DEPTH_LIMIT} levels down were not searched." if too_deep else ""


BASE_ID = "@base"
"""The id of a run in the base directory itself, which has no relative path."""
_MOST_TOLD = 10


def find_run(base_dir: Path, name: str) -> Path:
    """Return the directory of the run with the id `name`, else of the run with this run name or folder name.

    Raises RunNotFoundError if no run matches, or if several runs have the name; the message lists their ids.
    """
    base_dir = base_dir.resolve()
    try:
        return locate_run(base_dir, name)
    except RunNotFoundError as error:
        called = [path for path in scan_base(base_dir).paths if _is_called(path, name)]
        if not called:
            raise error from None
    # A run that was set aside has the name of the run that took its place. The name stands for the latter.
    found = [path for path in called if find_home(path) == path] or called
    if len(found) > 1:
        ids = sorted(name_run(base_dir, path) for path in found)
        told = ", ".join(ids[:_MOST_TOLD]) + (" …" if len(ids) > _MOST_TOLD else "")
        raise RunNotFoundError(
            f"{len(found)} runs below {base_dir} are called {name!r}; give the id of one of them: {told}"
        )
    return found[0]


def locate_run(base_dir: Path, run_id: str) -> Path:
    """Return the directory of the run with this id. Raises RunNotFoundError if there is none below the base directory.

    Links inside the run are not checked here; opening the run refuses them.
    """
    pieces = run_id.split("/")
    if "\0" in run_id or "\\" in run_id or any(piece in ("", ".", "..") for piece in pieces):
        raise RunNotFoundError(f"{run_id!r} is not the id of a run; an id is a path below the base directory")
    path = base_dir if run_id == BASE_ID else base_dir.joinpath(*pieces)
    try:
        inside = path.resolve().is_relative_to(base_dir) and os.path.lexists(layout.run_file(path))
        os.scandir(layout.profiler_path(path)).close()
    except PermissionError:
        raise ClosedRunError(spell_closed(layout.profiler_path(path))) from None
    except (OSError, RuntimeError, ValueError):  # a name too long for the disk, or a cycle of links
        inside = False
    if not inside:
        raise RunNotFoundError(f"There is no run {run_id!r} below {base_dir}")
    return path


def name_run(base_dir: Path, path: Path) -> str:
    return BASE_ID if path == base_dir else path.relative_to(base_dir).as_posix()


def _is_called(path: Path, name: str) -> bool:
    manifest = read_run_manifest(path)
    return name == path.name or (manifest is not None and manifest.name == name)
