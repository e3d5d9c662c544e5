"""Times of a run, as the gate reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collector.format.intervals import Floats
from profiler_server.analysis.compare.run_times import RunTimes


def make_times(at: int, steps_ns: Floats, parts_ns: Mapping[str, float], **more: Any) -> RunTimes:
    """Return the times of a run of one rank that began at `at`."""
    name = f"run-{at}"
    return RunTimes(
        "train.py", "host", 1, 0, name=name, started_unix_ns=at, steps_ns=steps_ns, parts_ns=parts_ns, **more
    )
