"""Find the attempts of a job: runs recorded at one path. A launcher begins a new one when the previous one failed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from collector.format.schema import layout
from collector.format.schema.errors import StepscopeError
from collector.format.schema.manifest import RunManifest, decode_manifest
from collector.format.schema.reading import read_small_text

SET_ASIDE = re.compile(r"[0-9]{8}-[0-9]{6}(-[0-9]{1,3})?")
"""The folder name of a run that a later run has moved to `earlier/`."""
_MOST_LOOKED = 1000


@dataclass(frozen=True)
class Attempt:
    """One run of a job. `number` counts the attempts from 1; `path` is the directory that holds `profiler/`."""

    number: int
    path: Path
    manifest: RunManifest


def list_attempts(run_path: Path) -> tuple[Attempt, ...]:
    """Return all readable attempts of the run's job, in order; empty if the launcher started the job only once."""
    jobs = list_jobs_of_place(run_path)
    own = next((job for job in jobs if run_path in [attempt.path for attempt in job]), ())
    return own if len(own) > 1 or any(attempt.number > 1 for attempt in own) else ()


def list_jobs_of_place(run_path: Path) -> list[tuple[Attempt, ...]]:
    """Return the jobs at a path, the oldest first, each with its readable attempts from 1: a launch is a job."""
    return group_attempts(_list_runs(run_path))


def group_attempts(runs: Iterable[Attempt]) -> list[tuple[Attempt, ...]]:
    """Return each job as a tuple of its attempts in order, oldest job first. `runs` may be of several jobs and paths; a
    run without a job id is a job of its own."""
    jobs: list[tuple[Attempt, ...]] = []
    latest: dict[tuple[Path, str], int] = {}
    for run in sorted(runs, key=lambda run: (run.manifest.created_unix_ns, run.number)):
        key = find_home(run.path), run.manifest.job_id
        place = latest.get(key) if run.manifest.job_id else None
        if place is not None and jobs[place][-1].number < run.number:
            jobs[place] += (run,)
        else:
            latest[key] = len(jobs)
            jobs.append((run,))
    return jobs


def find_home(run_path: Path) -> Path:
    """Return the path at which a run was recorded, even if the run was later moved to `earlier/`."""
    is_earlier = run_path.parent.name == layout.EARLIER_FOLDER and SET_ASIDE.fullmatch(run_path.name)
    return run_path.parent.parent if is_earlier else run_path


def _list_runs(run_path: Path) -> list[Attempt]:
    home = find_home(run_path)
    read = ((path, read_run_manifest(path)) for path in (home, *_list_set_aside(home)))
    return [Attempt(manifest.attempt, path, manifest) for path, manifest in read if manifest is not None]


def _list_set_aside(home: Path) -> Iterator[Path]:
    folder = home / layout.EARLIER_FOLDER
    if folder.is_symlink() or not folder.is_dir():
        return
    named = sorted(path for path in folder.iterdir() if SET_ASIDE.fullmatch(path.name) and not path.is_symlink())
    yield from named[-_MOST_LOOKED:]


def read_run_manifest(run_path: Path) -> RunManifest | None:
    """Return the manifest in run.json, None if it cannot be read; `open_run` raises an error with the reason."""
    file = layout.run_file(run_path)
    try:
        return decode_manifest(RunManifest, read_small_text(file), str(file))
    except (StepscopeError, OSError, ValueError):
        return None
