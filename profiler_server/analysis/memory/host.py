"""How busy the processors were, and with whose work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.parts import find_files
from collector.format.run import RankRun

_LEAST_CORES = 0.02
_LEAST_SAMPLES = 24
_WARM_UP_SHARE = 0.2
_PARTS = 6
_METRICS = (
    *("cpu_cores", "usable_cpu_cores", "run_queue_frac"),
    *("throttled_frac", "throttled_cores", "memory_stall_frac", "python_threads_cores", "main_thread_cores"),
)


@dataclass(frozen=True)
class MemoryGrowth:
    """Resident memory of the training process along the run, without its first fifth: the median of each sixth, in order.

    `elapsed_ns` lies between the middles of the first and the last.
    """

    levels_bytes: tuple[float, ...]
    elapsed_ns: int

    @property
    def grown_bytes(self) -> float:
        return self.levels_bytes[-1] - self.levels_bytes[0]

    @property
    def is_steady(self) -> bool:
        """Say whether every sixth adds at least a quarter of its even share: a cache that fills stops at some point."""
        least = 0.25 * self.grown_bytes / (len(self.levels_bytes) - 1)
        return all(after - before > max(least, 0.0) for before, after in pairwise(self.levels_bytes))


@dataclass(frozen=True)
class HostLoad:
    """Cores in use on average while steps ran. `others` is what other programs took, never negative.

    `stretch` is how many times longer work on a processor took than it would alone: time on a processor plus time in
    the queue for one, over the former. Of the workers where there are any, else of the process; None where not sampled.
    `queued_frac` is the share of its time that the training thread waited for a processor, `workers_queued_frac` the
    same of all workers together. `usable` are the cores in use of those that the run may use, None where only the whole
    machine was sampled; then `others_anywhere` counts others on cores, too, that the run may not use.
    `throttled_frac` is the share of its control group's periods that ended in a stop, `throttled_cores` the processors
    stopped on average, `memory_stall_frac` the share of time in which something in it waited for memory, and
    `system_stall_frac` that of the whole system, where only that was sampled; `busiest_worker` is cores of one worker,
    `main_thread` those of the main thread, `python_threads` those of other Python threads of the process.
    """

    process: float | None
    workers: float
    system: float | None
    others: float
    stretch: float | None = None
    growth: MemoryGrowth | None = None
    queued_frac: float | None = None
    workers_queued_frac: float | None = None
    others_anywhere: float = 0.0
    usable: float | None = None
    throttled_frac: float | None = None
    throttled_cores: float | None = None
    memory_stall_frac: float | None = None
    busiest_worker: float | None = None
    python_threads: float | None = None
    system_stall_frac: float | None = None
    main_thread: float | None = None

    @property
    def in_use(self) -> float | None:
        """Cores in use of those that the run may use, as far as the samples tell those from the others."""
        return self.system if self.usable is None else self.usable


def summarize_host(rank: RankRun, start_ns: int, end_ns: int) -> HostLoad | None:
    """Return the load between two times of the run, None if it was not sampled."""
    if not find_files(rank.folder, "resources"):
        return None
    samples = rank.table("resources", ("start_ns", "source", "metric", "value"))
    growth = _find_growth(samples, start_ns, end_ns)
    means = _average_samples(samples, start_ns, end_ns)
    if not means and growth is None:
        return None
    cores = {source: value for (source, metric), value in means.items() if metric == "cpu_cores"}
    waits = {source: value for (source, metric), value in means.items() if metric == "run_queue_frac"}
    process, system = cores.get("process"), cores.get("system")
    of_workers = [value for source, value in cores.items() if source.startswith("worker")]
    workers = sum(of_workers)
    usable = means.get(("system", "usable_cpu_cores"))
    in_use = system if usable is None else usable
    others = max(0.0, in_use - (process or 0.0) - workers) if in_use is not None else 0.0
    queued = [value for source, value in waits.items() if source.startswith("worker")]
    return HostLoad(
        process,
        workers,
        system,
        others,
        stretch=_find_stretch(cores, waits),
        growth=growth,
        queued_frac=waits.get("process"),
        workers_queued_frac=sum(queued) if queued else None,
        others_anywhere=others,
        usable=usable,
        throttled_frac=means.get(("cgroup", "throttled_frac")),
        throttled_cores=means.get(("cgroup", "throttled_cores")),
        memory_stall_frac=means.get(("cgroup", "memory_stall_frac")),
        system_stall_frac=means.get(("system", "memory_stall_frac")),
        main_thread=means.get(("process", "main_thread_cores")),
        busiest_worker=max(of_workers, default=None),
        python_threads=means.get(("process", "python_threads_cores")),
    )


def _average_samples(samples: pa.Table, start_ns: int, end_ns: int) -> dict[tuple[str, str], float]:
    """Return the mean of each metric of each source between two times."""
    inside = pc.and_(
        pc.and_(pc.greater_equal(samples["start_ns"], start_ns), pc.less_equal(samples["start_ns"], end_ns)),
        pc.is_in(samples["metric"].cast(pa.string()), pa.array(_METRICS)),
    )
    rows = samples.filter(inside).group_by(["source", "metric"], use_threads=False).aggregate([("value", "mean")])
    return {(row["source"], row["metric"]): float(row["value_mean"]) for row in rows.to_pylist()}


def _find_growth(samples: pa.Table, start_ns: int, end_ns: int) -> MemoryGrowth | None:
    """Return how the memory of the process went, None for too few samples to tell."""
    begin = start_ns + int(_WARM_UP_SHARE * (end_ns - start_ns))
    source, metric = samples["source"].cast(pa.string()), samples["metric"].cast(pa.string())
    wanted = pc.and_(pc.equal(source, "process"), pc.equal(metric, "memory_bytes"))
    inside = pc.and_(pc.greater_equal(samples["start_ns"], begin), pc.less_equal(samples["start_ns"], end_ns))
    rows = samples.filter(pc.and_(wanted, inside)).sort_by("start_ns")
    if rows.num_rows < _LEAST_SAMPLES:
        return None
    times, values = (np.array_split(rows[name].to_numpy(), _PARTS) for name in ("start_ns", "value"))
    elapsed = int(np.median(times[-1]) - np.median(times[0]))
    return MemoryGrowth(tuple(float(np.median(part)) for part in values), elapsed)


def _find_stretch(cores: Mapping[str, float], waits: Mapping[str, float]) -> float | None:
    known = [source for source in waits if source in cores]
    chosen = [source for source in known if source.startswith("worker")] or known
    ran = sum(min(cores[source], 1.0) for source in chosen)
    return 1.0 + sum(waits[source] for source in chosen) / ran if ran > _LEAST_CORES else None
