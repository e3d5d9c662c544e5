"""What the process of an import may take: a trace comes from anywhere, and a training may run on the same machine."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from collector.format.schema.errors import StepscopeError

WATCH_INTERVAL_S = 0.05
ADDRESS_LIMIT_BYTES = 16 << 30
"""Against one request for tens of GiB, which would come between two looks; far above what is only reserved."""


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
