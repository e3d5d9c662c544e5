"""Device times of all ranks: large traces are read in the background, and the page shows what is known by then."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from collector.format.run import RankRun, Run
from profiler_server.analysis.ranks.ranks import RankSummary, read_device
from profiler_server.analysis.results import DeviceTimes

PATIENCE_S = 1.0
_POOL = ThreadPoolExecutor(2, "ranks")
_RUNNING: dict[Hashable, Future[DeviceTimes | None]] = {}
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Devices:
    """The device times by rank; a rank without device work is not in it. `pending` ranks are still being read."""

    times: Mapping[int, DeviceTimes]
    pending: int


def read_devices(run: Run, ranks: Sequence[RankSummary]) -> Devices:
    """Return what is known after at most PATIENCE_S; the rest goes on being read for the next request."""
    wanted = [run.read_rank(rank.rank) for rank in ranks if rank.steps]
    futures = {rank.rank: _start(rank) for rank in wanted}
    deadline = time.monotonic() + PATIENCE_S
    done, pending = wait(futures.values(), max(deadline - time.monotonic(), 0.0))
    times = {rank: found for rank, future in futures.items() if future in done and (found := future.result())}
    return Devices(times, len(pending))


def _start(rank: RankRun) -> Future[DeviceTimes | None]:
    key = rank.key
    with _LOCK:
        future = _RUNNING.get(key)
        if future is None or future.done():
            future = _RUNNING[key] = _POOL.submit(read_device, rank)
        return future
