"""Find a run below a base directory by its id or name: one answer for Python, the commands and the server."""

from __future__ import annotations

import os
from pathlib import Path

from collector.format.attempts import find_home
from collector.format.scan import scan_base
from collector.format.schema import layout
from collector.format.schema.errors import ClosedRunError, RunNotFoundError, StepscopeError
from collector.format.schema.manifest import RunManifest, decode_manifest
from collector.format.schema.modes import spell_closed
from collector.format.schema.reading import read_small_text

BASE_ID = "@base"
"""The id of a run that is the base directory itself, which has no path below it."""
_MOST_TOLD = 10


def find_run(base_dir: Path, name: str) -> Path:
    """Return the directory of a run by its id, or else by its name or that of its folder.

    RunNotFoundError if there is none, or several of that name, which it lists.
    """
    base_dir = base_dir.resolve()
    try:
        return locate_run(base_dir, name)
    except RunNotFoundError as error:
        called = [path for path in scan_base(base_dir).paths if name in (path.name, _read_name(path))]
        if not called:
            raise error from None
    # A run that was set aside has the name of the one that took its place, which is meant.
    found = [path for path in called if find_home(path) == path] or called
    if len(found) > 1:
        ids = sorted(name_run(base_dir, path) for path in found)
        told = ", ".join(ids[:_MOST_TOLD]) + (" …" if len(ids) > _MOST_TOLD else "")
        raise RunNotFoundError(
            f"{len(found)} runs below {base_dir} are called {name!r}; give the id of one of them: {told}"
        )
    return found[0]


def locate_run(base_dir: Path, run_id: str) -> Path:
    """Return the directory of an id. Raises RunNotFoundError if it is no run, or lies outside the base directory.

    Whether it can be opened is another question: links inside it are refused there.
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
    except (OSError, RuntimeError, ValueError):  # a name too long for the disk, or links that run in a circle
        inside = False
    if not inside:
        raise RunNotFoundError(f"There is no run {run_id!r} below {base_dir}")
    return path


def name_run(base_dir: Path, path: Path) -> str:
    """Return the id of a directory below the base directory."""
    return BASE_ID if path == base_dir else path.relative_to(base_dir).as_posix()


def _read_name(path: Path) -> str | None:
    file = layout.run_file(path)
    try:
        return decode_manifest(RunManifest, read_small_text(file), str(file)).name
    except (StepscopeError, OSError, UnicodeDecodeError):
        return None
