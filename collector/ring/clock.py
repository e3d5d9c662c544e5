"""Convert `time.perf_counter_ns` readings to time since the run's epoch, as the tables have it."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """The Unix time from which a run's tables count, and readings of perf_counter_ns and time_ns at one moment."""

    epoch_unix_ns: int
    perf_ns: int
    unix_ns: int

    @classmethod
    def start(cls, epoch_unix_ns: int | None = None) -> Clock:
        """Return a Clock with both clocks read now. The epoch is now unless an epoch is given."""
        # The wall clock is read between two readings of the other one: the tightest of a few tries is kept.
        best: tuple[int, int, int] | None = None
        for _ in range(5):
            before = time.perf_counter_ns()
            unix = time.time_ns()
            after = time.perf_counter_ns()
            if best is None or after - before < best[0]:
                best = (after - before, (before + after) // 2, unix)
        assert best is not None
        return cls(best[2] if epoch_unix_ns is None else epoch_unix_ns, best[1], best[2])

    def to_run(self, perf_ns: int) -> int:
        """Convert a perf_counter_ns reading (or a numpy array of readings) to ns since the epoch."""
        return perf_ns + (self.unix_ns - self.perf_ns - self.epoch_unix_ns)

    def unix_to_run(self, unix_ns: int) -> int:
        """Convert a reading of time_ns or of Kineto's clock, or an array of them, to ns since the epoch."""
        return unix_ns - self.epoch_unix_ns

    def now(self) -> int:
        return self.to_run(time.perf_counter_ns())
