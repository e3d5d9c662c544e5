"""The process of an import, and its limits. A trace may come from anywhere, and a training may run on the same
machine.
"""

from __future__ import annotations

import logging
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
"""Limit of the address space, against a single allocation of tens of GiB between two checks. It is far above the memory
that an import only reserves."""
_REPORT_INTERVAL_S = 0.2
_NICENESS = 10
"""Niceness of an import: pages and trainings go first. An import also uses at most one core."""
log = logging.getLogger(__name__)


class MemoryLimitError(StepscopeError):
    """An import needs more memory than its limit."""


def bound_addresses() -> None:
    """Limit the address space of this process, if the system supports such a limit."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_LIMIT_BYTES, ADDRESS_LIMIT_BYTES))


def go_first() -> None:
    """Make the system kill this process, rather than a training, if it must kill one because memory is full."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


def check_memory(pid: int, limit_bytes: int) -> None:
    if read_memory_bytes(pid) > limit_bytes:
        raise MemoryLimitError(
            f"the import needs more than the {limit_bytes >> 20:,} MiB of memory that it may take here; "
            "run `stepscope import` on the server's machine, or start the server with a larger --import-memory"
        )


def read_memory_bytes(pid: int) -> int:
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text("ascii").split()
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


@dataclass(frozen=True)
class Work:
    """The task of an import process: the files, the folder of their run, and its scratch folder."""

    files: tuple[Path, ...]
    target: Path
    scratch: Path


def import_files(work: Work, sender: Connection) -> None:
    """Import trace files to a run; runs as the main function of a separate process. Sends ("progress", fraction done)
    several times, then ("end", error), with "" for success.
    """
    bound_addresses()
    go_first()
    os.nice(_NICENESS)
    from collector.traces.workers import Here, end_with_parent

    # If the server ends, the next one imports the upload.
    threading.Thread(target=end_with_parent, daemon=True).start()
    from collector.traces.format import ReadOptions
    from collector.traces.importing import import_traces

    told = 0.0

    def tell(share: float) -> None:
        nonlocal told
        if time.monotonic() - told > _REPORT_INTERVAL_S:
            told = time.monotonic()
            sender.send(("progress", share))

    try:
        options = ReadOptions(on_progress=tell, scratch=work.scratch)
        import_traces(work.files, work.target, options, Here(processes=1))
        sender.send(("end", ""))
    except StepscopeError as error:
        sender.send(("end", _hide_folder(str(error), work.files)))
    except Exception as error:  # An edge: what went wrong is shown in the browser.
        log.exception("traces cannot be imported")
        sender.send(("end", f"{type(error).__name__}: {error}"))


def block_signals() -> None:
    """Block Ctrl-C and similar signals in this thread. The processes that it starts inherit this.

    These signals reach all processes of a terminal or a service, but the server decides whether an import ends.
    """
    resource_tracker.ensure_running()  # which lets signals through again where it starts its process
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


def _hide_folder(text: str, files: tuple[Path, ...]) -> str:
    for path in files:
        text = text.replace(str(path), path.name)
    return text
