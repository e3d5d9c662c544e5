"""Operators and kernels of the detailed windows, summed by name, family, shape, step or module, and device work by
step.

Times are sums over every step of the windows. The self times of all operators add up without counting a nested call
twice. The total times do not add up, because the total of an operator includes its callees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Ints, unite
from collector.format.phases import PHASE_NAMES
from collector.format.run import RankRun
from profiler_server.analysis.device.slices import read_stream_tracks
from profiler_server.analysis.tables import choose, read_rows
from profiler_server.derive.derived import derived
from profiler_server.facts.results import KernelRow, OperatorRow

OPERATOR_MEASURES = ("count", "total_ns", "self_ns", "device_total_ns", "device_self_ns", "flops", "moved_bytes")
"""Columns that `sum_operators` sums. `flops` and `moved_bytes` skip unknown rows, and are null if all are unknown."""

KERNEL_KEYS = ("name", "operator", "device", "stream", "grid", "block")
"""Key columns of the kernel table: a kernel, its launching operator, and where and in which shape it ran."""

_KERNEL_COLUMNS = (
    *("step", *KERNEL_KEYS, "registers", "shared_bytes", "occupancy_frac", "blocks_per_sm"),
    *("tensor_core", "collective", "count", "total_ns", "min_ns", "max_ns"),
)


@dataclass(frozen=True)
class TypeRow:
    """One family of operators. `operators` is the number of distinct operators, `count` the number of calls. Times
    are totals over all steps of the detailed windows."""

    type: str
    operators: int
    count: int
    total_ns: int
    self_ns: int
    device_total_ns: int
    device_self_ns: int


def summarize_operators(rank: RankRun) -> tuple[OperatorRow, ...]:
    """Return one row per operator name, by device self time, then host self time; empty without operators.

    Raises TableBrokenError or NewerSchemaError.
    """
    names = ("name", "type", "count", "total_ns", "self_ns", "device_total_ns", "device_self_ns")
    return tuple(OperatorRow(**row) for row in _sum_names(rank).select(names).to_pylist())


def summarize_types(rank: RankRun) -> tuple[TypeRow, ...]:
    """Return one row per family of operators, in the order of `summarize_operators`, and with the same errors."""
    return tuple(TypeRow(**row) for row in sum_types(_sum_names(rank)).to_pylist())


@derived()
def _sum_names(rank: RankRun) -> pa.Table:
    return sum_operators(read_rows(rank, "operators", _list_columns()), ("name", "type"))


def find_dispatch_share(rank: RankRun) -> float | None:
    """Return the share of the detailed steps' time that the host spends in operators; None if no operator is in a step.

    Threads are summed, so that a backward in a separate thread is included. Raises as `summarize_operators` does.
    """
    operators = read_rows(rank, "operators", ("step", "self_ns"))
    operators = operators.filter(pc.is_valid(operators["step"]))
    steps = read_rows(rank, "steps", ("step", "duration_ns"))
    steps = steps.filter(pc.is_in(steps["step"], pc.unique(operators["step"])))
    total = pc.sum(steps["duration_ns"]).as_py()
    spent = pc.sum(operators["self_ns"]).as_py()
    return spent / total if total and spent else None


def find_phase_shares(rank: RankRun) -> Mapping[str, float]:
    """Return for each phase the share of its time that the host spends in operators; empty if unknown.

    The shares are of the detailed training steps. Operators without a known phase are added to each phase. Raises as
    `summarize_operators` does.
    """
    operators = read_rows(rank, "operators", ("step", "phase", "self_ns"))
    steps = choose(read_rows(rank, "steps", ("step", "kind", *(f"{name}_ns" for name in PHASE_NAMES))), "kind", "train")
    operators = operators.filter(pc.is_in(operators["step"], steps["step"]))
    steps = steps.filter(pc.is_in(steps["step"], pc.unique(operators["step"])))
    sums = _aggregate(operators, ("phase",), [("self_ns", "sum", "self_ns")]).to_pylist()
    spent = {row["phase"]: float(row["self_ns"]) for row in sums}
    lasted = {name: pc.sum(steps[f"{name}_ns"]).as_py() or 0 for name in PHASE_NAMES}
    return {
        name: min((spent.get(name, 0.0) + spent.get(None, 0.0)) / whole_ns, 1.0)
        for name, whole_ns in lasted.items()
        if whole_ns > 0
    }


def summarize_kernels(rank: RankRun) -> tuple[KernelRow, ...]:
    """Return one row per kernel name, the longest total first. Raises as `summarize_operators` does."""
    table = sum_kernels(read_rows(rank, "kernels", _KERNEL_COLUMNS), ("name",))
    names = ("name", "count", "total_ns", "mean_ns", "min_ns", "max_ns")
    return tuple(KernelRow(**row) for row in table.select(names).to_pylist())


def read_operators(rank: RankRun, keys: Sequence[str] = ()) -> pa.Table:
    """Read the measures, step, name and type of the operators, and the columns `keys`. Raises as `RankRun.table` does."""
    return rank.table("operators", _list_columns(*keys))


def _list_columns(*keys: str) -> tuple[str, ...]:
    return ("step", "name", "type", *keys, *OPERATOR_MEASURES)


def read_kernels(rank: RankRun) -> pa.Table:
    """Read the columns that `sum_kernels` needs. Raises as `RankRun.table` does."""
    return rank.table("kernels", _KERNEL_COLUMNS)


def sum_operators(operators: pa.Table, by: Sequence[str]) -> pa.Table:
    """Return the sums of OPERATOR_MEASURES per combination of the columns `by`: longest device self time first, then
    longest host self time, then by these columns.
    """
    grouped = _aggregate(operators, by, [(name, "sum", name) for name in OPERATOR_MEASURES])
    return _sort(grouped, ("device_self_ns", "self_ns"), by)


def sum_types(operators: pa.Table) -> pa.Table:
    """Sum per family: the fields of TypeRow, in the order of `sum_operators`."""
    times = OPERATOR_MEASURES[:5]
    aggregations = [("name", "count_distinct", "operators"), *((name, "sum", name) for name in times)]
    return _sort(_aggregate(operators, ("type",), aggregations), ("device_self_ns", "self_ns"), ("type",))


def sum_kernels(kernels: pa.Table, by: Sequence[str] = KERNEL_KEYS) -> pa.Table:
    """Return the sums of kernels by the columns `by`: count, total_ns, mean_ns, min_ns, max_ns, occupancy_frac,
    tensor_core; longest total first.

    The occupancy is the mean weighted by time, Σ(occupancy · total) / Σ total, over rows with a known occupancy.
    """
    total = pc.cast(kernels["total_ns"], pa.float64())
    occupancy = kernels["occupancy_frac"]
    weighed = kernels.append_column("occupied_ns", pc.multiply(occupancy, total)).append_column(
        "known_ns", pc.if_else(pc.is_valid(occupancy), total, None)
    )
    sums = [(name, "sum", name) for name in ("count", "total_ns", "occupied_ns", "known_ns")]
    extremes = [("min_ns", "min", "min_ns"), ("max_ns", "max", "max_ns"), ("tensor_core", "any", "tensor_core")]
    grouped = _aggregate(weighed, by, [*sums, *extremes])
    calls = pc.cast(grouped["count"], pa.float64())
    mean = pc.divide(pc.cast(grouped["total_ns"], pa.float64()), pc.if_else(pc.equal(calls, 0.0), None, calls))
    known = pc.if_else(pc.greater(grouped["known_ns"], 0.0), grouped["known_ns"], None)
    grouped = grouped.append_column("mean_ns", mean).append_column(
        "occupancy_frac", pc.divide(grouped["occupied_ns"], known)
    )
    return _sort(grouped.drop_columns(["occupied_ns", "known_ns"]), ("total_ns",), by)


def _aggregate(data: pa.Table, by: Sequence[str], aggregations: Sequence[tuple[str, str, str]]) -> pa.Table:
    """Return the table grouped by the columns `by`. Each aggregation is (column, function, name of the result). Text
    keys become plain strings.
    """
    grouped = data.group_by(list(by), use_threads=False).aggregate([(name, how) for name, how, _ in aggregations])
    columns = {key: grouped[key] for key in by}
    plain = {key: keys.cast(pa.string()) for key, keys in columns.items() if pa.types.is_dictionary(keys.type)}
    return pa.table(columns | plain | {result: grouped[f"{name}_{how}"] for name, how, result in aggregations})


def _sort(data: pa.Table, measures: Sequence[str], keys: Sequence[str]) -> pa.Table:
    return data.sort_by([*((name, "descending") for name in measures), *((key, "ascending") for key in keys)])


@dataclass(frozen=True)
class DeviceStep:
    """The device work of one step: `count` pieces. `total_ns` is from the first start to the last end, `busy_ns` the
    part of it with work, `wait_ns` the part without."""

    step: int
    count: int
    total_ns: int
    busy_ns: int
    wait_ns: int


def summarize_device_steps(rank: RankRun) -> tuple[DeviceStep, ...]:
    """Return one row per step with device work, in order. Raises as `RankRun.table` does."""
    streams = list(read_stream_tracks(rank))
    if not streams:
        return ()
    on_device = pc.field("track").isin(streams) & (pc.field("duration_ns") > 0)
    slices = rank.table("slices", ("step", "start_ns", "duration_ns"), where=on_device & pc.field("step").is_valid())
    slices = slices.sort_by([("step", "ascending"), ("start_ns", "ascending")])
    steps, starts, lengths = (slices[name].to_numpy() for name in slices.column_names)
    numbers, firsts = np.unique(steps, return_index=True)
    bounds = [*firsts.tolist(), len(steps)]
    return tuple(
        _summarize_step(int(number), starts[a:b], starts[a:b] + lengths[a:b])
        for number, a, b in zip(numbers, bounds[:-1], bounds[1:], strict=True)
    )


def _summarize_step(step: int, starts: Ints, ends: Ints) -> DeviceStep:
    busy, total = unite(starts, ends).length_ns, int(ends.max() - starts[0])
    return DeviceStep(step, len(starts), total, busy, total - busy)


def order_operators(rank: RankRun, step: int) -> pa.Table:
    """Return the columns name and order: operators numbered from 1 by their first start in that step.

    Raises as `RankRun.table` does.
    """
    where = (pc.field("step") == step) & (pc.field("category") == "operator")
    slices = rank.table("slices", ("name", "start_ns"), where=where)
    firsts = slices.group_by("name", use_threads=False).aggregate([("start_ns", "min")]).sort_by("start_ns_min")
    order = pa.array(np.arange(1, firsts.num_rows + 1), pa.int64())
    return pa.table({"name": firsts["name"].cast(pa.string()), "order": order})
