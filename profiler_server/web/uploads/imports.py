"""Imports of uploaded trace files into runs. Each runs in a separate process, so that pages stay quick."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

from collector.format.schema.removal import (
    SCRATCH_FILE,
    Abandoned,
    Marked,
    make_folder,
    make_scratch,
    remove_empty,
    remove_tree,
    scratch_folder,
    tolerated,
)
from profiler_server.settings import IMPORT_MEMORY_BYTES
from profiler_server.store.traces import find_free_name, name_run
from profiler_server.web.uploads import waiting
from profiler_server.web.uploads.process import (
    WATCH_INTERVAL_S,
    MemoryLimitError,
    Work,
    block_signals,
    check_memory,
    import_files,
)

UPLOAD_FOLDER = ".stepscope-uploads"
KEPT = 200
_LONGEST_NAME = 50
_STALE_S = 24 * 3600.0
_UPLOAD = Marked(waiting.FOLDER_NAME, (SCRATCH_FILE, waiting.ACCEPTED_FILE))
_LEFT_UPLOAD = Abandoned(waiting.FOLDER_NAME, _STALE_S)
_LEFT_IMPORT = Abandoned(re.compile(rf"\..{{1,{_LONGEST_NAME}}}\.[0-9a-f]{{16}}", re.DOTALL), _STALE_S)
_MKDIR_TRIES = 10
MOST_TRIES = 3
"""Number of servers that may die while they import an upload. Then the upload is taken as the cause."""
log = logging.getLogger(__name__)

State = Literal["waiting", "importing", "done", "failed", "cancelled"]
_CANCELLED = "cancelled before it was done"
_TAKEN = "another server took this upload; reload the list of runs"
_DEADLY = f"{MOST_TRIES} servers ended while they imported this; try `stepscope import` on the server's machine"


@dataclass(frozen=True)
class Import:
    """One import. `files` are the names of its files. `run_id` is None until the import is done, `error` is None unless
    it failed or was cancelled.

    `progress_frac` is the fraction of the files that were read.
    """

    id: str
    state: State
    files: tuple[str, ...]
    progress_frac: float = 0.0
    run_id: str | None = None
    error: str | None = None

    @property
    def is_under_way(self) -> bool:
        return self.state in ("waiting", "importing")


class Imports:
    """The imports of a server, and their states. They run one at a time. Several threads may use it.

    `on_made` is called once a run exists, before the import is reported as done.
    """

    def __init__(
        self, base_dir: Path, on_made: Callable[[], None] = lambda: None, memory_bytes: int = IMPORT_MEMORY_BYTES
    ) -> None:
        self._base_dir = base_dir
        self._on_made = on_made
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, Import] = OrderedDict()
        self._pool: ThreadPoolExecutor | None = None
        self._running: tuple[str, multiprocessing.process.BaseProcess] | None = None
        self._memory_bytes = memory_bytes
        self._is_closing = False

    def resume(self) -> None:
        """Put the uploads that an earlier server accepted but did not import into the queue of imports.

        Scratch folders of servers that have ended are removed first.
        """
        for left in self._base_dir.glob(".*"):
            with suppress(OSError):
                remove_tree(left, _LEFT_IMPORT, self._base_dir)
        for folder, files in waiting.list_accepted(self._base_dir / UPLOAD_FOLDER):
            self._accept(folder, files)

    def make_folder(self) -> Path:
        """Make a folder for the files of one upload, beside the runs, so that a full disk is noticed before the import."""
        room = self._base_dir / UPLOAD_FOLDER
        for left in _list_names(room):  # of a server that was killed
            with suppress(OSError):
                if left not in self._jobs:
                    remove_tree(room / left, _LEFT_UPLOAD, self._base_dir)
        for _ in range(_MKDIR_TRIES):
            with suppress(FileExistsError):
                make_folder(room)
            with suppress(FileNotFoundError):  # the last upload has just taken the room away
                return make_scratch(room, "", self._base_dir).path
        raise FileNotFoundError(errno.ENOENT, "it is removed again and again", str(room))

    def remove_folder(self, folder: Path) -> None:
        with tolerated():
            remove_tree(folder, _UPLOAD, self._base_dir)
        remove_empty(folder.parent, self._base_dir)  # unless another upload is under way

    def start(self, folder: Path, files: Sequence[Path]) -> Import:
        """Put the files of a folder made by `make_folder` into the queue of imports, and return the waiting import.
        The folder is removed after the import."""
        waiting.accept(folder, files)
        return self._accept(folder, tuple(files))

    def _accept(self, folder: Path, files: tuple[Path, ...]) -> Import:
        job = Import(folder.name, "waiting", tuple(path.name for path in files))
        with self._lock:
            self._enqueue(job, name_run(job.files[0]), files, folder)
        return job

    def find(self, job_id: str) -> Import | None:
        with self._lock:
            return self._jobs.get(job_id)

    def count_before(self, job: Import) -> int:
        """Return the number of imports before a waiting import; 0 for any other import."""
        with self._lock:
            going = [other.id for other in self._jobs.values() if other.is_under_way]
        return going.index(job.id) if job.state == "waiting" and job.id in going else 0

    def cancel(self, job_id: str) -> Import | None:
        """End a waiting or running import and return it; None if the import is unknown or has ended."""
        with self._lock:
            job = self._jobs.get(job_id)
            if job is None or not job.is_under_way:
                return None
            job = self._jobs[job_id] = replace(job, state="cancelled", error=_CANCELLED)
            if self._running is not None and self._running[0] == job_id:
                self._running[1].kill()
        return job

    def close(self) -> None:
        """Stop the running import and start no other. The next server imports the unfinished uploads."""
        with self._lock:
            self._is_closing = True
            pool, running = self._pool, self._running
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
        if running is not None:
            running[1].kill()

    def _enqueue(self, job: Import, name: str, files: tuple[Path, ...], folder: Path) -> None:
        self._jobs[job.id] = job
        ended = [known.id for known in self._jobs.values() if not known.is_under_way]
        for known in ended[: max(len(self._jobs) - KEPT, 0)]:
            del self._jobs[known]
        self._pool = self._pool or ThreadPoolExecutor(1, "imports")
        self._pool.submit(self._run, job, name, files, folder)

    def _run(self, job: Import, name: str, files: tuple[Path, ...], folder: Path) -> None:
        with waiting.claim(folder) as is_mine:
            if not is_mine:
                self._note(replace(job, state="failed", error=_TAKEN))
                return
            if not self._is_wanted(job):
                done = job
            elif waiting.count_try(folder) > MOST_TRIES:
                done = replace(job, state="failed", error=_DEADLY)
            else:
                done = self._make(job, name, files)
            if done.error and self._is_closing and self._is_wanted(job):
                waiting.forget_tries(folder)
                return
            self.remove_folder(folder)
        self._note(done)

    def _is_wanted(self, job: Import) -> bool:
        with self._lock:
            return self._jobs.get(job.id, job).is_under_way

    def _make(self, job: Import, name: str, files: tuple[Path, ...]) -> Import:
        self._note(replace(job, state="importing"))
        try:
            name = find_free_name(self._base_dir, name)
            error = self._import(job, files, name)
            if not error:
                self._on_made()
        except Exception as fault:  # The thread of all imports must outlive one that fails in any way.
            log.exception("traces cannot be imported")
            error = f"{type(fault).__name__}: {fault}"
        done = replace(job, state="failed", error=error) if error else replace(job, state="done", run_id=name)
        return replace(done, progress_frac=1.0)

    def _import(self, job: Import, files: tuple[Path, ...], name: str) -> str:
        """Import in a separate process. Return the error, empty if it succeeded."""
        with scratch_folder(f".{name[:_LONGEST_NAME]}.", self._base_dir) as scratch:
            return self._import_in(job, Work(files, self._base_dir / name, scratch))

    def _import_in(self, job: Import, work: Work) -> str:
        context = multiprocessing.get_context("spawn")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=import_files, args=(work, sender), daemon=True)
        block_signals()
        process.start()
        with self._lock:
            self._running = (job.id, process)
            if self._is_closing or not self._jobs.get(job.id, job).is_under_way:
                process.kill()  # cancelled in this very moment
        sender.close()
        try:
            return self._follow(job, receiver, process.pid or 0)
        except MemoryLimitError as error:
            process.kill()
            return str(error)
        except EOFError:  # it died without a word
            return "the import was ended from outside (memory may have run out); import the file on the server instead"
        finally:
            process.join()
            with self._lock:
                self._running = None

    def _follow(self, job: Import, receiver: Connection, pid: int) -> str:
        """Record the progress of an import until its process ends, and return the error that the process reports, else
        "".

        Raises EOFError or MemoryLimitError.
        """
        while True:
            while not receiver.poll(WATCH_INTERVAL_S):
                check_memory(pid, self._memory_bytes)
            kind, value = receiver.recv()
            if kind == "end":
                return str(value)
            check_memory(pid, self._memory_bytes)
            self._note(replace(job, state="importing", progress_frac=value))

    def _note(self, job: Import) -> None:
        """Record the state of a job. A cancelled job stays cancelled."""
        with self._lock:
            known = self._jobs.get(job.id)
            if known is not None and known.state != "cancelled":
                self._jobs[job.id] = job


def _list_names(folder: Path) -> list[str]:
    with suppress(OSError):
        return os.listdir(folder)
    return []
