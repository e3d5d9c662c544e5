"""Samples of processors, memory, disk and GPU: series over the steps, the load of the host, and throttled clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Floats, Ints, Mask
from collector.format.run import RankRun
from collector.format.steps import read_integers, train_steps
from collector.format.words import ENDED_WORKERS
from profiler_server.analysis.tables import choose, find_rows, read_rows
from profiler_server.diagnosis.limits.data import LEAST_CORES
from profiler_server.diagnosis.limits.traces import CLOCK_SAMPLES, MEMORY_SAMPLES
from profiler_server.facts.machine import HeldClock, HostLoad, MemoryGrowth

_COLUMNS = ("start_ns", "source", "metric", "value")


@dataclass(frozen=True)
class StepScale:
    """A converter of times to positions on an axis of steps: step 7 extends from 7.0 to 8.0. `number` are the steps,
    `start_ns` and `end_ns` their times. Without steps, the position of a time is its number of seconds.
    """

    number: Ints
    start_ns: Ints
    end_ns: Ints

    @classmethod
    def empty(cls) -> StepScale:
        return cls(*(np.empty(0, np.int64),) * 3)

    @property
    def unit(self) -> str:
        return "step" if len(self.number) else "s"

    def place(self, times_ns: Ints) -> Floats:
        """Return the position of each time. A time between two steps gets the border of both steps. A time outside of
        all steps gets NaN.
        """
        if not len(self.number):
            return times_ns / 1e9
        knots = np.stack([self.start_ns, self.end_ns], axis=1).reshape(-1)
        numbers = np.stack([self.number, self.number + 1], axis=1).reshape(-1).astype(np.float64)
        return np.asarray(np.interp(times_ns, knots, numbers, left=np.nan, right=np.nan), np.float64)


@dataclass(frozen=True)
class Series:
    """One metric of one source in time order. `x` are positions on the axis of steps. The metric's name ends in the
    unit of `value`.
    """

    source: str
    metric: str
    x: Floats
    value: Floats

    @property
    def mean(self) -> float:
        return float(self.value.mean())

    @property
    def peak(self) -> float:
        return float(self.value.max())


@dataclass(frozen=True)
class Resources:
    """All series of a rank in a range of steps. `samples` is the number of sampling times; `outside` of them lie
    outside of all steps.

    `unit` is the unit of x: step, or s for a run without steps.
    """

    series: tuple[Series, ...]
    samples: int
    outside: int
    unit: str

    def find(self, source: str, metric: str) -> Series | None:
        return next((entry for entry in self.series if (entry.source, entry.metric) == (source, metric)), None)

    def pick(self, metric: str, prefix: str = "") -> tuple[Series, ...]:
        """Return the series of a metric whose source begins with `prefix`."""
        return tuple(entry for entry in self.series if entry.metric == metric and entry.source.startswith(prefix))


def read_scale(rank: RankRun) -> StepScale:
    """Read the times of the training steps. Without steps the scale is empty. Raises as `read_rows` does."""
    train = train_steps(read_rows(rank, "steps", ("kind", "step", "start_ns", "duration_ns")))
    start = read_integers(train, "start_ns")
    return StepScale(read_integers(train, "step"), start, start + read_integers(train, "duration_ns"))


def read_resources(rank: RankRun, scale: StepScale, steps: tuple[int, int] | None = None) -> Resources:
    """Read the samples of a rank, limited to the steps from `steps[0]` to `steps[1]` if given.

    Raises TableMissingError, TableBrokenError or NewerSchemaError.
    """
    table = rank.table("resources", _COLUMNS).sort_by("start_ns")
    times = read_integers(table, "start_ns")
    x = scale.place(times)
    inside = np.isfinite(x)
    if steps is not None:
        inside &= (x >= steps[0]) & (x < steps[1] + 1)
    values = np.asarray(table["value"].to_numpy(), np.float64)
    inside &= np.isfinite(values)
    series = _split(table, x, values, inside)
    moments = np.unique(times[np.isfinite(x)])
    return Resources(series, len(np.unique(times)), len(np.unique(times)) - len(moments), scale.unit)


def _split(table: pa.Table, x: Floats, values: Floats, inside: Mask) -> tuple[Series, ...]:
    source, sources = _number(table, "source")
    metric, metrics = _number(table, "metric")
    key = source * max(len(metrics), 1) + metric
    found = []
    for code in np.unique(key[inside]).tolist():
        rows = np.flatnonzero(inside & (key == code))
        found.append(Series(sources[code // len(metrics)], metrics[code % len(metrics)], x[rows], values[rows]))
    return tuple(sorted(found, key=lambda entry: (entry.metric, _order(entry.source))))


def _number(table: pa.Table, name: str) -> tuple[Ints, list[str]]:
    column = table[name].combine_chunks()
    return np.asarray(column.indices.to_numpy(zero_copy_only=False), np.int64), column.dictionary.to_pylist()


def _order(source: str) -> tuple[int, str]:
    """Return a sort key that sorts `worker 2` before `worker 10`, and other sources by name."""
    return (len(source), source) if source.startswith(("worker ", "gpu ")) else (0, source)


def sum_series(series: Sequence[Series], source: str) -> Series | None:
    """Return the sum of series that were sampled at nearly the same times, as a series of `source`; None without
    series.

    Its positions are those of the longest series.
    """
    if not series:
        return None
    base = max(series, key=lambda entry: len(entry.x))
    total = np.zeros(len(base.x))
    for entry in series:
        # A worker that has not begun or has already ended adds nothing.
        total += np.interp(base.x, entry.x, entry.value, left=0.0, right=0.0)
    return Series(source, base.metric, base.x, total)


@dataclass(frozen=True)
class Throttling:
    """The share of one GPU's samples in which its clock was throttled, in total and by cause: power, heat, other."""

    source: str
    share_frac: float
    causes: tuple[tuple[str, float], ...]


_THROTTLE_CAUSES = {1: "power", 2: "heat", 4: "other"}


def find_throttling(resources: Resources) -> tuple[Throttling, ...]:
    """Return the GPUs that had a throttled clock in any sample. The causes of a GPU are sorted, the most frequent
    first.
    """
    found = []
    for series in resources.pick("throttle_flags", "gpu "):
        flags = series.value.astype(np.int64)
        if not flags.any():
            continue
        shares = [(name, float((flags & flag > 0).mean())) for flag, name in _THROTTLE_CAUSES.items()]
        causes = tuple(sorted((entry for entry in shares if entry[1]), key=lambda entry: -entry[1]))
        found.append(Throttling(series.source, float((flags > 0).mean()), causes))
    return tuple(found)


_WARM_UP_SHARE = 0.2
_PARTS = 6
_METRICS = (
    *("cpu_cores", "usable_cpu_cores", "run_queue_frac"),
    *("throttled_frac", "throttled_cores", "memory_stall_frac", "python_threads_cores", "main_thread_cores"),
)


def summarize_host(rank: RankRun, start_ns: int, end_ns: int) -> HostLoad | None:
    """Return the load of the host from `start_ns` to `end_ns` of the run; None if not sampled."""
    samples = read_rows(rank, "resources", _COLUMNS)
    growth = _find_growth(samples, start_ns, end_ns)
    means = _average_samples(samples, start_ns, end_ns)
    if not means and growth is None:
        return None
    cores, waits = (
        {source: value for (source, metric), value in means.items() if metric == wanted}
        for wanted in ("cpu_cores", "run_queue_frac")
    )
    of_workers, queued = ([each[source] for source in each if source.startswith("worker")] for each in (cores, waits))
    living = [cores[source] for source in cores if source.startswith("worker") and source != ENDED_WORKERS]
    process, system = cores.get("process"), cores.get("system")
    usable = means.get(("system", "usable_cpu_cores"))
    in_use = system if usable is None else usable
    others = max(0.0, in_use - (process or 0.0) - sum(of_workers)) if in_use is not None else 0.0
    return HostLoad(
        *(process, sum(of_workers), system, others),
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
        busiest_worker=max(living, default=None),
        python_threads=means.get(("process", "python_threads_cores")),
    )


def _cut(samples: pa.Table, start_ns: int, end_ns: int) -> pa.Table:
    at = samples["start_ns"]
    return samples.filter(pc.and_(pc.greater_equal(at, start_ns), pc.less_equal(at, end_ns)))


def _average_samples(samples: pa.Table, start_ns: int, end_ns: int) -> dict[tuple[str, str], float]:
    rows = choose(_cut(samples, start_ns, end_ns), "metric", *_METRICS)
    rows = rows.group_by(["source", "metric"], use_threads=False).aggregate([("value", "mean")])
    return {(row["source"], row["metric"]): float(row["value_mean"]) for row in rows.to_pylist()}


def _find_growth(samples: pa.Table, start_ns: int, end_ns: int) -> MemoryGrowth | None:
    begin = start_ns + int(_WARM_UP_SHARE * (end_ns - start_ns))
    rows = choose(choose(_cut(samples, begin, end_ns), "source", "process"), "metric", "memory_bytes").sort_by(
        "start_ns"
    )
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


HEAT, HARDWARE = 2, 4
"""Flags of `throttle_flags`. The power limit is left out: a busy GPU reaches it without a fault."""


def read_held_clock(rank: RankRun, start_ns: int, end_ns: int) -> HeldClock | None:
    """Return the GPU that lost most of its clock rate to heat or hardware limits from `start_ns` to `end_ns`; None if
    no GPU lost any.
    """
    rows = _cut(find_rows(rank, "resources", _COLUMNS), start_ns, end_ns)
    rows = choose(rows, "metric", "clock_hz", "throttle_flags")
    sources = rows["source"].cast(pa.string())
    found = [_find_held_clock(str(name), choose(rows, "source", name)) for name in pc.unique(sources).to_pylist()]
    return max((entry for entry in found if entry is not None), key=lambda entry: entry.lost_frac, default=None)


def _find_held_clock(gpu: str, rows: pa.Table) -> HeldClock | None:
    values = {}
    for name in ("clock_hz", "throttle_flags"):
        chosen = choose(rows, "metric", name)
        values[name] = dict(zip(chosen["start_ns"].to_pylist(), chosen["value"].to_pylist(), strict=True))
    both = sorted(values["clock_hz"].keys() & values["throttle_flags"].keys())
    if len(both) < CLOCK_SAMPLES:
        return None
    clock = np.array([values["clock_hz"][at] for at in both], np.float64)
    flags = np.array([values["throttle_flags"][at] for at in both]).astype(np.int64)
    held = (flags & (HEAT | HARDWARE)) > 0
    if not held.any():
        return None
    usual = float(clock[~held].max()) if (~held).any() else 0.0
    return HeldClock(gpu, float(held.mean()), float(np.median(clock[held])), usual, bool((flags & HEAT).any()))
