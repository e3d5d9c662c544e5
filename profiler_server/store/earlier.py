"""Find the run that a run tries to improve where no base directory is known: it lies at the same path or beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from collector.format.attempts import find_home, list_jobs_of_place, read_run_manifest
from collector.format.run import Run, open_run
from collector.format.schema.errors import RunError
from collector.format.schema.manifest import RunManifest
from profiler_server.store.catalog import find_family, is_same_job
from profiler_server.store.headline import read_headline

_MOST_BESIDE = 1_000
"""Folders beside a run of which run.json is read."""
_MOST_READ = 10
"""Runs whose steps are read to find one with steps."""


def find_earlier_beside(run: Run) -> Run | None:
    """Return the last run with steps before a run, of the same script, recorded at the same path or beside it; None
    without one.

    The option `baseline` of a run names another run beside it.
    """
    try:
        named = run.manifest.options.get("baseline")
        home = find_home(run.path.absolute())
        if isinstance(named, str) and named:
            paths = [home.parent / Path(named).name]
        else:
            found = sorted(_list_before(run.manifest, home), key=lambda entry: -entry[1].created_unix_ns)
            paths = [path for path, _ in found[:_MOST_READ]]
    except (RunError, OSError, ValueError):
        return None
    return next((each for path in paths if (each := _open_with_steps(path, run.path)) is not None), None)


def _list_before(own: RunManifest, home: Path) -> Iterator[tuple[Path, RunManifest]]:
    folders = [path for path in home.parent.iterdir() if path != home][:_MOST_BESIDE]
    beside = [(path, manifest) for path in folders if (manifest := read_run_manifest(path)) is not None]
    at_place = [(each.path, each.manifest) for job in list_jobs_of_place(home) for each in job]
    for path, manifest in (*at_place, *beside):
        is_alike = find_family(manifest.script, manifest.name) == find_family(own.script, own.name)
        is_before = manifest.created_unix_ns < own.created_unix_ns and not is_same_job(manifest, own)
        if is_alike and is_before and not manifest.is_imported:
            yield path, manifest


def _open_with_steps(path: Path, other_than: Path) -> Run | None:
    if path.is_symlink() or path.absolute() == other_than.absolute():
        return None
    try:
        run = open_run(path)
        return run if read_headline(run).step_p50_ns else None
    except RunError:
        return None
