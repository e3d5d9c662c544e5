"""Limits of an import. A module of its own, so that a command can name the limits before it imports Arrow."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from collector.format.schema.errors import TraceError


@dataclass(frozen=True)
class ReadLimits:
    """Limits of an import: unpacked bytes of a file, seconds for all; `deadline_s` is monotonic, set once begun."""

    unpacked_bytes: int = 32 << 30
    seconds: float = 3600.0
    deadline_s: float | None = None

    def begin(self) -> ReadLimits:
        """Return the limits with a deadline. If the limits have no deadline yet, the allowed time begins now."""
        return self if self.deadline_s is not None else replace(self, deadline_s=time.monotonic() + self.seconds)

    def check(self, path: Path, read_bytes: int = 0) -> None:
        """Raise TraceError if `read_bytes` or the time exceed the limits. `path` is the file in the message."""
        if read_bytes > self.unpacked_bytes:
            raise TraceError(
                f"{path} unpacks to more than {self.unpacked_bytes / (1 << 30):,.3g} GiB, the limit of an import; "
                "record fewer steps, or raise it: stepscope import --limit-gib"
            )
        if self.deadline_s is not None and time.monotonic() > self.deadline_s:
            raise TraceError(
                f"{path} takes longer than {self.seconds / 60:,.3g} min to import, the limit; "
                "record fewer steps, or raise it: stepscope import --limit-minutes"
            )
