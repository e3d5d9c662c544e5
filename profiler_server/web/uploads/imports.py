"""Imports that run beside the server, each in a process of its own, so that pages stay quick."""

from __future__ import annotations

import logging
import multiprocessing
import secrets
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

from profiler_server.store.names import find_free_name, name_run

UPLOAD_FOLDER = ".stepscope-uploads"
KEPT = 200
_STALE_S = 24 * 3600
_REPORT_INTERVAL_S = 0.2
log = logging.getLogger(__name__)

State = Literal["waiting", "importing", "done", "failed"]


@dataclass(frozen=True)
class Import:
    """One import. `run_id` is there once it is done, `error` if it failed; `progress_frac` is of the files read.

    `paths` are files below the base directory, which stay where they are; empty for an upload.
    """

    id: str
    state: State
    files: tuple[str, ...]
    progress_frac: float = 0.0
    run_id: str | None = None
    error: str | None = None
    paths: tuple[Path, ...] = ()

    @property
    def is_under_way(self) -> bool:
        return self.state in ("waiting", "importing")


class Imports:
    """Start imports and remember how they went. Safe to use from several threads.

    `on_made` is called once a run is there, before the import says so.
    """

    def __init__(self, base_dir: Path, on_made: Callable[[], None] = lambda: None) -> None:
        self._base_dir = base_dir
        self._on_made = on_made
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, Import] = OrderedDict()
        self._pool: ThreadPoolExecutor | None = None
        self._running: multiprocessing.process.BaseProcess | None = None

    def make_folder(self) -> Path:
        """Make a folder for the files of one upload, beside the runs, so that a full disk is met before the import."""
        room = self._base_dir / UPLOAD_FOLDER
        room.mkdir(exist_ok=True)
        for left in room.iterdir():  # of a server that was killed
            if time.time() - left.stat().st_mtime > _STALE_S:
                shutil.rmtree(left, ignore_errors=True)
        folder = room / secrets.token_hex(8)
        folder.mkdir()
        return folder

    def remove_folder(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.parent.rmdir()
        except OSError:
            return  # another upload is under way

    def start(self, folder: Path, files: Sequence[Path]) -> Import:
        """Import the files of a folder that `make_folder` made; the folder is removed afterwards."""
        job = Import(folder.name, "waiting", tuple(path.name for path in files))
        with self._lock:
            self._enqueue(job, name_run(job.files[0]), tuple(files), folder)
        return job

    def start_below(self, files: Sequence[Path], name: str) -> Import:
        """Import files that lie below the base directory. Ones that are under way already are not begun again."""
        with self._lock:
            job = self._find_under_way(files)
            if job is None:
                names = tuple(path.name for path in files)
                job = Import(secrets.token_hex(8), "waiting", names, paths=tuple(files))
                self._enqueue(job, name, tuple(files), None)
        return job

    def list_below(self) -> dict[Path, Import]:
        """Return the latest import of each file below the base directory that had one."""
        with self._lock:
            return {path: job for job in self._jobs.values() for path in job.paths}

    def find(self, job_id: str) -> Import | None:
        with self._lock:
            return self._jobs.get(job_id)

    def close(self) -> None:
        """Stop what runs; its folder is removed by the thread that waits for it."""
        with self._lock:
            pool, running = self._pool, self._running
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
        if running is not None:
            running.terminate()

    def _find_under_way(self, files: Sequence[Path]) -> Import | None:
        going = (job for job in self._jobs.values() if job.is_under_way)
        return next((job for job in going if not set(files).isdisjoint(job.paths)), None)

    def _enqueue(self, job: Import, name: str, files: tuple[Path, ...], folder: Path | None) -> None:
        self._jobs[job.id] = job
        while len(self._jobs) > KEPT:
            self._jobs.popitem(last=False)
        self._pool = self._pool or ThreadPoolExecutor(1, "imports")
        self._pool.submit(self._run, job, name, files, folder)

    def _run(self, job: Import, name: str, files: tuple[Path, ...], folder: Path | None) -> None:
        self._note(replace(job, state="importing"))
        try:
            name = find_free_name(self._base_dir, name)
            error = _refuse_links(job.paths) or self._import(job, files, name)
            if not error:
                self._on_made()
        except Exception as fault:  # The thread of all imports must outlive one that fails in any way.
            log.exception("traces cannot be imported")
            error = f"{type(fault).__name__}: {fault}"
        if folder is not None:
            self.remove_folder(folder)
        done = replace(job, state="failed", error=error) if error else replace(job, state="done", run_id=name)
        self._note(replace(done, progress_frac=1.0))

    def _import(self, job: Import, files: tuple[Path, ...], name: str) -> str:
        """Import in a process of its own; return what went wrong, empty for nothing."""
        context = multiprocessing.get_context("spawn")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=import_files, args=(files, self._base_dir / name, sender), daemon=True)
        process.start()
        with self._lock:
            self._running = process
        sender.close()
        error = "the import was ended from outside (memory may have run out); import the file on the server instead"
        try:
            while True:
                kind, value = receiver.recv()
                if kind == "end":
                    error = value
                    break
                self._note(replace(job, state="importing", progress_frac=value))
        except EOFError:
            pass  # it died without a word
        finally:
            process.join()
            with self._lock:
                self._running = None
        return error

    def _note(self, job: Import) -> None:
        with self._lock:
            if job.id in self._jobs:
                self._jobs[job.id] = job


def import_files(files: tuple[Path, ...], target: Path, sender: Connection) -> None:
    """Import trace files to a run. Runs in a process of its own; sends ("progress", share) and ("end", error)."""
    from collector.format.schema.errors import StepscopeError
    from collector.traces import import_trace

    told = 0.0

    def tell(share: float) -> None:
        nonlocal told
        if time.monotonic() - told > _REPORT_INTERVAL_S:
            told = time.monotonic()
            sender.send(("progress", share))

    try:
        import_trace(list(files), target, name=target.name, on_progress=tell)
        sender.send(("end", ""))
    except StepscopeError as error:
        sender.send(("end", _hide_folder(str(error), files)))
    except Exception as error:  # noqa: BLE001  an edge: what went wrong is shown in the browser
        sender.send(("end", f"{type(error).__name__}: {error}"))


def _refuse_links(paths: tuple[Path, ...]) -> str:
    """Say which file was reached by a link, empty if none is: one may have come since the files were listed."""
    linked = next((path for path in paths if path.resolve() != path), None)
    return f"{linked.name} is reached by a link by now, and links are not followed" if linked else ""


def _hide_folder(text: str, files: tuple[Path, ...]) -> str:
    """Name files as the sender knows them, not where they lay for a moment."""
    for path in files:
        text = text.replace(str(path), path.name)
    return text
