"""How busy the processors were, and with whose work."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.parts import find_files
from collector.format.run import RankRun
from profiler_server.diagnosis.limits.data import LEAST_CORES
from profiler_server.diagnosis.limits.traces import MEMORY_SAMPLES
from profiler_server.facts.machine import HostLoad, MemoryGrowth

_WARM_UP_SHARE = 0.2
_PARTS = 6
_METRICS = (
    *("cpu_cores", "usable_cpu_cores", "run_queue_frac"),
    *("throttled_frac", "throttled_cores", "memory_stall_frac", "python_threads_cores", "main_thread_cores"),
)


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
    if rows.num_rows < MEMORY_SAMPLES:
        return None
    times, values = (np.array_split(rows[name].to_numpy(), _PARTS) for name in ("start_ns", "value"))
    elapsed = int(np.median(times[-1]) - np.median(times[0]))
    return MemoryGrowth(tuple(float(np.median(part)) for part in values), elapsed)


def _find_stretch(cores: Mapping[str, float], waits: Mapping[str, float]) -> float | None:
    known = [source for source in waits if source in cores]
    chosen = [source for source in known if source.startswith("worker")] or known
    ran = sum(min(cores[source], 1.0) for source in chosen)
    return 1.0 + sum(waits[source] for source in chosen) / ran if ran > LEAST_CORES else None
