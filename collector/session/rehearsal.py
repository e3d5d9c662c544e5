"""Time what the hooks cost the training thread, by calling them around nothing.

A loop of nothing but hooks would find them in the processor's caches; in a training step they are not, because the
step's own work has filled them. So the caches are filled with something else before each call. What is not counted:
what the hooks push out of the caches, and detailed windows, which are timed by themselves.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collector.context.signals import SignalContext
from collector.notes import Notes
from collector.options import Options
from collector.ring.words import WordLog

CALLS = 9
FILLER_BYTES = 16 << 20
"""More than a step of a small model touches: the figure is rather too high than too low."""
_SCRATCH_WORDS = 1 << 12


def time_hooks(kinds: tuple[Any, ...], context: SignalContext) -> dict[str, float]:
    """Return ns per call for each hook that the signals rehearse: fetch, forward, backward, update, zero."""
    scratch = context.events / "rehearsal.ring"
    try:
        stage = _build_stage(scratch, context.options, context.notes, context.rank_folder)
        calls: dict[str, Callable[[], object]] = {}
        for kind in kinds:
            if hasattr(kind, "rehearse"):
                calls |= kind().rehearse(stage)
        filler = bytearray(FILLER_BYTES)
        nothing = _time_cold(_do_nothing, filler)
        return {name: max(_time_cold(call, filler) - nothing, 0.0) for name, call in calls.items()}
    finally:
        scratch.unlink(missing_ok=True)


def _build_stage(scratch: Path, options: Options, notes: Notes, rank_folder: Path) -> SignalContext:
    return SignalContext(rank_folder, options, WordLog(scratch, _SCRATCH_WORDS), notes)


def _time_cold(call: Callable[[], object], filler: bytearray) -> float:
    durations = []
    for _ in range(CALLS):
        bytes(filler)
        before = time.perf_counter_ns()
        call()
        durations.append(time.perf_counter_ns() - before)
    return statistics.median(durations)


def _do_nothing() -> None:
    pass
