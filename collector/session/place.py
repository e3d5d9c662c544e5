"""Choose the folder for a rank: join the run of the same launch, or set an earlier run aside and begin a new one."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector.format.attempts import SET_ASIDE, Attempt, list_jobs_of_place
from collector.format.schema import layout
from collector.format.schema.errors import OutputError, StepscopeError
from collector.format.schema.inside import open_inside, opened_parent
from collector.format.schema.manifest import RunManifest, decode_manifest, encode_manifest
from collector.format.schema.reading import read_small_text
from collector.format.schema.removal import (
    Made,
    Marked,
    ensure_run_folder,
    make_folder,
    move,
    remove_empty,
    remove_file,
    remove_tree,
    tolerated,
)
from collector.notes import read_notes
from collector.sidecar.process import has_ended, is_locked, is_running
from collector.version import __version__

JOIN_S = 600.0
"""Seconds after the start of a launch's first rank within which all other ranks of the launch begin."""
MOST_EARLIER = 3
"""The number of earlier jobs whose runs are kept in `earlier/`."""
_RUN = Marked(re.compile(layout.PROFILER_FOLDER), (layout.RUN_FILE,))
_log = logging.getLogger("stepscope")
FREE_S = 10.0
"""How long a new run waits for an earlier run to finish its files before OutputError is raised."""


BEGINS_S = 3.0
"""Age in seconds up to which an empty rank folder may belong to a recorder that is just starting."""
_NO_RUN_ID = "none"
"""The id that torchrun gives every job without a name."""
ALONE_S = 2 * FREE_S
"""How long a rank waits for other ranks of its host that claim the same folder."""

_UNKNOWN = RunManifest("", "", 0, 0, "collector", 0, "")
"""Stands for a run without a readable manifest: it has no launch, so no rank joins it."""


@dataclass(frozen=True)
class Launch:
    """A rank that asks for a folder, with its launch.

    `id` is shared by the ranks of one launch, `job` by all launches of one job; both are "" without a launcher.
    `requeues` counts how often SLURM requeued the job, `restarts` how often torchrun restarted it since then.
    """

    rank: int
    world_size: int
    id: str
    torch: str | None
    cuda: str | None
    options: dict[str, Any]
    job: str = ""
    requeues: int = 0
    restarts: int = 0


@dataclass(frozen=True)
class Place:
    """The folder of a rank. `made` is the proof that this process made it.

    `is_new` is true if `run_path` did not exist before. `set_aside` is the new path of an earlier run, None if there
    was none. `continued` is the attempt number of that run; 0 if it belongs to another job or there was none.
    """

    run_path: Path
    rank_folder: Path
    rank: int
    epoch_unix_ns: int
    made: Made
    is_new: bool = False
    set_aside: Path | None = None
    continued: int = 0


def find_job() -> tuple[str, int, int]:
    """Return the job's id, how often SLURM requeued the job, and how often torchrun restarted it since then.

    All attempts of a job have the same id. Without a launcher the id is "" and the counts are 0.
    """
    named = [os.environ.get("SLURM_JOB_ID", ""), os.environ.get("TORCHELASTIC_RUN_ID", "")]
    if not any(named):
        return "", 0, 0
    if named[1] in ("", _NO_RUN_ID):
        named += [os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")]
    return ":".join(named), _read_count("SLURM_RESTART_COUNT"), _read_count("TORCHELASTIC_RESTART_COUNT")


def _read_count(name: str) -> int:
    count = os.environ.get(name, "")
    return int(count) if count.isascii() and count.isdecimal() else 0


def find_launch_id() -> str:
    """Return an id from the environment that only the ranks of one launch share; "" without a launcher."""
    names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT")
    values = [os.environ.get(name, "") for name in names]
    return ":".join(values) if any(values) else ""


def claim_place(output_path: Path, launch: Launch) -> Place:
    """Make this rank's folder in `<output_path>/profiler`, in the run that its launch has begun there or in a new one.
    Raises OutputError with the reason if that fails."""
    run_path = output_path.expanduser().absolute()
    try:
        is_new = not run_path.exists()
        ensure_run_folder(run_path)
        # A rank that has read an earlier run's manifest would else set the run aside that another one has just begun.
        with _alone(run_path):
            place = _claim(run_path, launch, is_new)
    except OSError as error:
        raise OutputError(
            f"{run_path} cannot be written ({error.strerror or error}); choose another output_path"
        ) from None
    if place is None:
        raise OutputError(f"{run_path} is being written by other processes; choose another output_path")
    return place


def _claim(run_path: Path, launch: Launch, is_new: bool) -> Place | None:
    set_aside: Path | None = None
    continued = 0
    for _ in range(20):
        manifest = _read_run(run_path)
        if manifest is not None and not _can_join(run_path, manifest, launch):
            if (moved := _set_aside(run_path, launch)) is not None:
                set_aside, continued = moved, manifest.attempt if _continues(launch, manifest) else 0
            manifest = None
        manifest = manifest or _create_run(run_path, launch)
        if manifest is None:
            continue  # a rank on another host was faster: look again
        folder = layout.rank_path(run_path, launch.rank)
        try:
            made = make_folder(folder)
        except FileExistsError:
            continue
        make_folder(layout.events_path(folder))
        return Place(run_path, folder, launch.rank, manifest.epoch_unix_ns, made, is_new, set_aside, continued)
    return None


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with contextlib.ExitStack() as opened:
        with contextlib.suppress(OSError, ImportError):
            import fcntl  # not everywhere

            descriptor = os.open(folder, os.O_RDONLY)
            opened.callback(os.close, descriptor)
            deadline = time.monotonic() + ALONE_S
            while time.monotonic() < deadline:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(0.005)
        yield


def abandon_place(place: Place) -> None:
    """Remove the folder of a rank that recorded nothing. Remove the run too if it has no other rank."""
    with tolerated():
        remove_tree(place.rank_folder, place.made)
    if not layout.find_ranks(place.run_path):
        remove_file(layout.run_file(place.run_path))
        if remove_empty(layout.profiler_path(place.run_path)) and place.is_new:
            remove_empty(place.run_path)


def _read_run(run_path: Path) -> RunManifest | None:
    """Return the manifest of the run at this path; the stand-in `_UNKNOWN` if it cannot be read, None without a run."""
    manifest = _read_manifest(run_path)
    if manifest is None and _has_ranks(run_path):
        # A rank's folder is made only after run.json. Either another rank has just made both, or the run has lost its
        # manifest: look again.
        manifest = _read_manifest(run_path) or _UNKNOWN
    return manifest


def _read_manifest(run_path: Path) -> RunManifest | None:
    path = layout.run_file(run_path)
    try:
        return decode_manifest(RunManifest, read_small_text(path), str(path))
    except FileNotFoundError:
        return None
    except (StepscopeError, ValueError):
        return _UNKNOWN
    except OSError as error:
        if error.errno is not None:
            raise
        return _UNKNOWN  # a pipe or a huge file cannot be a manifest


def _has_ranks(run_path: Path) -> bool:
    try:
        return bool(layout.find_ranks(run_path))
    except FileNotFoundError:
        return False


def _can_join(run_path: Path, manifest: RunManifest, launch: Launch) -> bool:
    young = time.time() - manifest.created_unix_ns / 1e9 < JOIN_S
    if not launch.id or manifest.launch_id != launch.id or manifest.world_size != launch.world_size or not young:
        return False
    if layout.rank_path(run_path, launch.rank).exists():
        return False
    return not any(_is_over(layout.rank_path(run_path, rank)) for rank in layout.find_ranks(run_path))


def _is_over(rank_folder: Path) -> bool:
    """Return whether a rank is known to have ended. This is unknown on another host, or if the rank just begins."""
    if has_ended(rank_folder):
        return True
    try:
        notes = read_notes(rank_folder)
    except (OSError, ValueError):
        return False
    return bool(notes.finished) or (notes.host == socket.gethostname() and not is_running(notes))


def _has_begun(rank_folder: Path) -> bool:
    """Return whether another process of this host records to this folder or may be about to, even without its lock."""
    if has_ended(rank_folder):
        return False
    if _is_unsure(rank_folder):
        return True
    try:
        notes = read_notes(rank_folder)
    except (OSError, ValueError):
        return False
    return not notes.finished and notes.pid != os.getpid() and notes.host == socket.gethostname() and is_running(notes)


def _is_unsure(rank_folder: Path) -> bool:
    """Return whether the folder is young and has no notes yet: its process may be about to record, or may have died."""
    try:
        read_notes(rank_folder)
    except (OSError, ValueError):
        with contextlib.suppress(OSError):
            return abs(time.time() - layout.events_path(rank_folder).stat().st_mtime) < BEGINS_S
    return False


def _is_recording(rank_folder: Path) -> bool:
    return not _is_over(rank_folder) and (is_locked(rank_folder) or not _is_unsure(rank_folder))


def _list_ranks(run_path: Path) -> dict[int, Path]:
    return {rank: layout.rank_path(run_path, rank) for rank in layout.find_ranks(run_path)}


def _set_aside(run_path: Path, launch: Launch) -> Path | None:
    """Move an earlier run to `earlier/` and return its path there; None if another process has moved it already. Raises
    OutputError if the run still records.
    """
    deadline = time.monotonic() + FREE_S
    while any(is_locked(folder) or _has_begun(folder) for folder in _list_ranks(run_path).values()):
        recording = [rank for rank, folder in _list_ranks(run_path).items() if _is_recording(folder)]
        if recording or time.monotonic() > deadline:
            raise OutputError(
                f"{run_path} is being recorded by another process (rank {recording[0] if recording else '?'}); choose another "
                "output_path, or, for ranks of one launch, make the Profiler after init_process_group or set RANK"
            )
        time.sleep(0.1)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for attempt in range(100):
        target = run_path / layout.EARLIER_FOLDER / (stamp if not attempt else f"{stamp}-{attempt}")
        ensure_run_folder(run_path, layout.EARLIER_FOLDER)
        try:
            make_folder(target, run_path)
        except FileExistsError:
            continue
        try:
            move(layout.profiler_path(run_path), target / layout.PROFILER_FOLDER, run_path)
        except FileNotFoundError:
            remove_empty(target, run_path)  # another rank has already moved it
            return None
        _remove_oldest(run_path, launch)
        return target
    return None


def _remove_oldest(run_path: Path, launch: Launch) -> None:
    """Remove the runs of all jobs but the last MOST_EARLIER from `earlier/`, never this launch's job or other files."""
    folder = run_path / layout.EARLIER_FOLDER
    runs = [path for path in folder.iterdir() if SET_ASIDE.fullmatch(path.name)]
    runs.sort(key=lambda path: [int(part) for part in path.name.split("-")])
    jobs = {attempt.path: job[0].path for job in list_jobs_of_place(run_path) for attempt in job}
    last_first = dict.fromkeys(jobs.get(path, path) for path in reversed(runs))
    kept = {*list(last_first)[:MOST_EARLIER], *(attempt.path for attempt in _find_job(run_path, launch)[:1])}
    for path in runs:
        if jobs.get(path, path) in kept:
            continue
        with tolerated():
            remove_tree(path / layout.PROFILER_FOLDER, _RUN, run_path)
            _log.warning("stepscope: %s was removed: the last %s jobs that were set aside are kept", path, MOST_EARLIER)
        remove_empty(path, run_path)


def _find_job(run_path: Path, launch: Launch) -> tuple[Attempt, ...]:
    """Return the recorded attempts before this launch of the job that it repeats; empty for a new job."""
    last = _find_last(run_path, launch)
    return last if last and _continues(launch, last[-1].manifest) else ()


def _find_last(run_path: Path, launch: Launch) -> tuple[Attempt, ...]:
    """Return the attempts of the last job in this folder that has the launch's job id; empty without such a job."""
    jobs = [job for job in list_jobs_of_place(run_path) if job[0].manifest.job_id == launch.job]
    return jobs[-1] if jobs else ()


def _continues(launch: Launch, last: RunManifest) -> bool:
    """Return whether a launch is a later attempt of the last run's job.

    Equal counts of requeues and restarts mean the same attempt: a script may train many times in one attempt.
    """
    is_of_job = bool(launch.job) and last.job_id == launch.job
    return is_of_job and (last.requeues, last.restarts) < (launch.requeues, launch.restarts)


def _count_attempt(run_path: Path, launch: Launch) -> int:
    """Return the number of a launch among the attempts of its job, from 1.

    Attempts that left no run in this place are included if the launcher counts them.
    """
    last = _find_last(run_path, launch)
    started = launch.requeues + launch.restarts
    if not last:
        return started + 1
    before = last[-1].manifest
    return before.attempt + max(started - before.requeues - before.restarts, 1) if _continues(launch, before) else 1


def _create_run(run_path: Path, launch: Launch) -> RunManifest | None:
    now = time.time_ns()
    script = sys.argv[0] if sys.argv else ""
    manifest = RunManifest(
        id=run_path.name,
        name=run_path.name,
        created_unix_ns=now,
        epoch_unix_ns=now,
        source="collector",
        world_size=launch.world_size,
        host=socket.gethostname(),
        stepscope=__version__,
        python=sys.version.split()[0],
        torch=launch.torch,
        cuda=launch.cuda,
        launch_id=launch.id,
        job_id=launch.job,
        requeues=launch.requeues,
        restarts=launch.restarts,
        attempt=_count_attempt(run_path, launch),
        script=Path(script).name if script else "",
        argv=tuple(sys.argv[1:]),
        options=launch.options,
    )
    path = layout.run_file(run_path)
    ensure_run_folder(run_path, layout.PROFILER_FOLDER)
    partial = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with open(partial, "x", encoding="utf-8", opener=open_inside) as file:
            file.write(encode_manifest(manifest))
        # A link is made whole or not at all, and only once: nobody reads half a manifest.
        with opened_parent(path) as folder:
            os.link(partial.name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        return None
    finally:
        remove_file(partial)
    return manifest
