"""Imports that run beside the server, each in a process of its own, so that pages stay quick."""

from __future__ import annotations

import logging
import multiprocessing
import secrets
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
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
    """One import. `run_id` is there once it is done, `error` if it failed; `progress_frac` is of the files read."""

    id: str
    state: State
    files: tuple[str, ...]
    progress_frac: float = 0.0
    run_id: str | None = None
    error: str | None = None


class Imports:
    """Start imports and remember how they went. Safe to use from several threads."""

    def __init__(self, base_dir: Path) -> None:
        self._base_dir = base_dir
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
        names = tuple(path.name for path in files)
        job = Import(folder.name, "waiting", names)
        with self._lock:
            self._jobs[job.id] = job
            while len(self._jobs) > KEPT:
                self._jobs.popitem(last=False)
            self._pool = self._pool or ThreadPoolExecutor(1, "imports")
            self._pool.submit(self._run, job, folder, tuple(files))
        return job

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

    def _run(self, job: Import, folder: Path, files: tuple[Path, ...]) -> None:
        self._note(replace(job, state="importing"))
        try:
            name = find_free_name(self._base_dir, name_run(job.files[0]))
            error = self._import(job, files, name)
            done = replace(job, state="failed", error=error) if error else replace(job, state="done", run_id=name)
            self._note(replace(done, progress_frac=1.0))
        except Exception as error:  # The thread of all imports must outlive one that fails in any way.
            log.exception("an upload cannot be imported")
            self._note(replace(job, state="failed", error=f"{type(error).__name__}: {error}"))
        finally:
            self.remove_folder(folder)

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
    from collector.schema.errors import StepscopeError
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


def _hide_folder(text: str, files: tuple[Path, ...]) -> str:
    """Name files as the sender knows them, not where they lay for a moment."""
    for path in files:
        text = text.replace(str(path), path.name)
    return text
