"""Take an output path that ends in .json or .json.gz as that of a trace, written at the end; the run lies beside it."""

from __future__ import annotations

from pathlib import Path

from collector.notebook.run import Run

_ENDINGS = (".json", ".json.gz")


def split_path(path: Path) -> tuple[Path, Path | None]:
    """Return the path of the run, and the path of the trace. The second is None if the path does not ask for a trace.

    An existing folder whose name ends in .json is a run like any other.
    """
    ending = next((ending for ending in _ENDINGS if path.name.endswith(ending) and path.name != ending), None)
    if ending is None or path.is_dir():
        return path, None
    return path.with_name(path.name.removesuffix(ending)), path


def write_trace(run: Run, rank: int, path: Path) -> Path:
    """Write the trace of one rank to `path` and return its path. If the job has several ranks, the rank is put into the
    file's name."""
    if run.manifest.world_size > 1:
        stem, _, endings = path.name.partition(".json")
        path = path.with_name(f"{stem}.rank{rank}.json{endings}")
    run.write_trace(path, [rank])
    return path
