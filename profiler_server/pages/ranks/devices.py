"""Device times of all ranks: large traces are read in the background, and the page shows what is known by then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial

from collector.format.run import Run
from profiler_server.analysis.ranks.ranks import MOST_RANKS, RankSummary, read_device
from profiler_server.derive.background import Background
from profiler_server.derive.store import find_store
from profiler_server.facts.machine import DeviceTimes

PATIENCE_S = 1.0


@dataclass(frozen=True)
class Devices:
    """The device times by rank; a rank without device work is not in it. `pending` ranks are still being read."""

    times: Mapping[int, DeviceTimes]
    pending: int


def read_devices(run: Run, ranks: Sequence[RankSummary]) -> Devices:
    """Return what is known after at most PATIENCE_S; the rest goes on being read for the next request."""
    wanted = [run.read_rank(rank.rank) for rank in ranks if rank.steps and rank.has_device]
    readers = find_store().part(_make_readers)
    started = {rank.rank: readers.start(rank.key, partial(read_device, rank)) for rank in wanted}
    futures = {rank: future for rank, future in started.items() if future is not None}
    done, _ = wait(futures.values(), PATIENCE_S)
    times = {rank: found for rank, future in futures.items() if future in done and (found := future.result())}
    return Devices(times, len(started) - len(done))


def _make_readers() -> Background:
    """Apart from what other pages wait for: this page waits a moment, and most ranks are read within it."""
    return Background(threads=2, head_start=False, most_waiting=2 * MOST_RANKS)
