"""The process of an import, and what it may take: a trace comes from anywhere, and a training may run on the same machine."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path

from collector.format.schema.errors import StepscopeError

WATCH_INTERVAL_S = 0.05
ADDRESS_LIMIT_BYTES = 16 << 30
"""Against one request for tens of GiB, which would come between two looks; far above what is only reserved."""
_REPORT_INTERVAL_S = 0.2
_NICENESS = 10
"""Pages, and trainings on the same machine, go before an import; it takes one core at most for the same reason."""
log = logging.getLogger(__name__)


class MemoryLimitError(StepscopeError):
    """An import needs more memory than it may take."""


def bound_addresses() -> None:
    """Bound the memory that this process can ask for, where the system knows such a limit."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_LIMIT_BYTES, ADDRESS_LIMIT_BYTES))


def go_first() -> None:
    """Where memory is full, have the system end this process rather than a training beside it."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


def check_memory(pid: int, limit_bytes: int) -> None:
    """Raise MemoryLimitError if a process holds more than it may."""
    if read_memory_bytes(pid) > limit_bytes:
        raise MemoryLimitError(
            f"the import needs more than the {limit_bytes >> 20:,} MiB of memory that it may take here; "
            "run `profiler-server import` on the server's machine, or start the server with a larger --import-memory"
        )


def read_memory_bytes(pid: int) -> int:
    """Return how much memory a process holds that no other shares; 0 where that cannot be told."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text("ascii").split()
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


@dataclass(frozen=True)
class Work:
    """What a process of its own imports: the files, where their run goes, and the folder that it works in."""

    files: tuple[Path, ...]
    target: Path
    scratch: Path


def import_files(work: Work, sender: Connection) -> None:
    """Import trace files to a run. Runs in a process of its own; sends ("progress", share) and ("end", error)."""
    bound_addresses()
    go_first()
    os.nice(_NICENESS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from collector.format.schema.errors import StepscopeError
    from collector.traces.importing import Importing, import_traces
    from collector.traces.workers import Here

    told = 0.0

    def tell(share: float) -> None:
        nonlocal told
        if time.monotonic() - told > _REPORT_INTERVAL_S:
            told = time.monotonic()
            sender.send(("progress", share))

    try:
        how = Importing(work.target.name, on_progress=tell, workers=Here(processes=1), scratch=work.scratch)
        import_traces(list(work.files), work.target, how)
        sender.send(("end", ""))
    except StepscopeError as error:
        sender.send(("end", _hide_folder(str(error), work.files)))
    except Exception as error:  # An edge: what went wrong is shown in the browser.
        log.exception("traces cannot be imported")
        sender.send(("end", f"{type(error).__name__}: {error}"))


def block_signals() -> None:
    """Keep Ctrl-C and the like, which reach all processes of a terminal or a service, from the processes that this thread
    starts: the server says whether an import ends with it."""
    resource_tracker.ensure_running()  # which lets signals through again where it starts its process
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


def _end_with_parent() -> None:
    """End this process with the server, whatever ends that: the next one imports the upload."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _hide_folder(text: str, files: tuple[Path, ...]) -> str:
    """Name files as the sender knows them, not where they lay for a moment."""
    for path in files:
        text = text.replace(str(path), path.name)
    return text
