"""Traces below the base directory without a run, each as the run that it would become."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler_server.store.catalog import Listing
from profiler_server.store.traces import TraceFile, find_free_name, group_traces, name_run
from profiler_server.web.uploads.imports import Import, Imports


@dataclass(frozen=True)
class TraceOffer:
    """One trace, or the ranks of one job. `files` are paths below the base directory; `command` imports them.

    `import_id` names the running import, None if there is none; `error` is why the last import failed.
    """

    name: str
    files: tuple[str, ...]
    size_bytes: int
    command: str
    import_id: str | None
    error: str | None


def list_offers(listing: Listing, base_dir: Path, imports: Imports) -> tuple[TraceOffer, ...]:
    """Return the traces that can be imported, in order of folder depth, then of path."""
    known = imports.list_below()
    return tuple(_describe(group, base_dir, known) for group in group_traces(listing.traces))


def start_offered(files: Sequence[str], listing: Listing, base_dir: Path, imports: Imports) -> Import | None:
    """Start the import of the offer with exactly these files; None if the listing has no such offer."""
    for group in group_traces(listing.traces):
        paths = [trace.path for trace in group]
        if [_place(path, base_dir) for path in paths] == list(files):
            return imports.start_below(paths, _name_run(group, base_dir))
    return None


def _describe(group: Sequence[TraceFile], base_dir: Path, known: Mapping[Path, Import]) -> TraceOffer:
    paths = [trace.path for trace in group]
    words = ["profiler-server", "import", *map(str, paths), "--summary-base-dir", str(base_dir)]
    if len(group) > 1:
        words += ["--name", find_free_name(base_dir, _name_run(group, base_dir))]
    job = next((known[path] for path in paths if path in known), None)
    return TraceOffer(
        name=_place(paths[0], base_dir) if len(group) == 1 else _place(paths[0].parent, base_dir) + "/",
        files=tuple(_place(path, base_dir) for path in paths),
        size_bytes=sum(trace.size_bytes for trace in group),
        command=shlex.join(words),
        import_id=job.id if job and job.is_under_way else None,
        error=job.error if job else None,
    )


def _name_run(group: Sequence[TraceFile], base_dir: Path) -> str:
    """Return the name of the run, made from the folder for the ranks of a job with its own folder, else from the file."""
    first = group[0].path
    return name_run(first.name if len(group) == 1 or first.parent == base_dir else first.parent.name)


def _place(path: Path, base_dir: Path) -> str:
    return path.relative_to(base_dir).as_posix()
