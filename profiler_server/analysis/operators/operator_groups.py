"""The operator table grouped by type, operator, kernel, host order or module, and as a tree.

Every grouping is an Arrow table with its keys, `count`, the times, `mean_ns` and `share_frac`. The share is of the self
time: on the device if the run has device time, else on the host. The shares of a grouping sum to 1. `steps` limits a
grouping to a range of steps; None means all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.lens import StepRange
from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from profiler_server.analysis.operators.operators import (
    KERNEL_KEYS,
    order_operators,
    read_kernels,
    read_operators,
    sum_kernels,
    sum_operators,
    sum_types,
)
from profiler_server.analysis.operators.roofline import find_roof, list_tf32_users, measure_roofline

Measure = Literal["device", "host"]
NO_MODULE = "(outside of every module)"


@dataclass(frozen=True)
class GroupTable:
    """The table of one grouping. Its figures cover the steps with the numbers `steps`. `outside` means that the
    figures also include work outside of all steps. `measure` says whether the shares are of host or of device time.
    """

    rows: pa.Table
    measure: Measure
    steps: tuple[int, ...]
    outside: bool


@dataclass(frozen=True)
class Group:
    """A way to group the operator table: `name` is the key column, `search_in` are the columns that a search
    compares, and `tabulate` makes the table of a rank and a range of steps (None for all steps)."""

    name: str
    search_in: tuple[str, ...]
    tabulate: Callable[[RankRun, StepRange | None], GroupTable]


def tabulate_types(rank: RankRun, steps: StepRange | None = None) -> GroupTable:
    """Sum operators by family, in all steps if `steps` is None. Raises as `RankRun.table` does, like every function
    here.
    """
    operators = within_steps(read_operators(rank), steps)
    return _complete(sum_types(operators), operators)


def tabulate_operators(rank: RankRun, steps: StepRange | None = None) -> GroupTable:
    operators = within_steps(read_operators(rank), steps)
    return _complete(sum_operators(operators, ("name", "type")), operators)


def tabulate_kernels(rank: RankRun, steps: StepRange | None = None) -> GroupTable:
    """Sum kernels by name, owning operator, stream and launch shape, in all steps if `steps` is None."""
    kernels = within_steps(read_kernels(rank), steps)
    rows = sum_kernels(kernels, KERNEL_KEYS)
    return _cover(rows.append_column("share_frac", _share(rows["total_ns"])), "device", kernels)


def tabulate_host(rank: RankRun, steps: StepRange | None = None) -> GroupTable:
    """Sum host times by operator name, in all steps if `steps` is None. `order` is the position of the first call in
    the first step, or null.
    """
    operators = within_steps(read_operators(rank), steps)
    group = _complete(sum_operators(operators, ("name", "type")), operators, "host")
    try:
        order = order_operators(rank, group.steps[0]) if group.steps else None
    except RunError:
        order = None  # The order is an addition: the times stand without the slices.
    if order is None:
        rows = group.rows.append_column("order", pa.nulls(group.rows.num_rows, pa.int64()))
    else:
        rows = group.rows.join(order, "name", join_type="left outer", use_threads=False)
    return replace(group, rows=rows)


def tabulate_modules(rank: RankRun, steps: StepRange | None = None) -> GroupTable:
    """Sum self times of operators by the path of the nn.Module that calls them, in all steps if `steps` is None."""
    operators = within_steps(read_operators(rank, ("module",)), steps)
    named = pc.fill_null(operators["module"].cast(pa.string()), NO_MODULE)
    operators = operators.set_column(operators.column_names.index("module"), "module", named)
    return _complete(sum_operators(operators, ("module",)), operators)


def tabulate_roofline(rank: RankRun, steps: StepRange | None = None) -> GroupTable:
    """Compare operators with the device's peak rates, where shapes give the operations. Shares are of all operators'
    time.
    """
    operators = within_steps(read_operators(rank, ("input_dtypes",)), steps)
    measure: Measure = "device" if (pc.sum(operators["device_self_ns"]).as_py() or 0) > 0 else "host"
    roof = find_roof(rank) if measure == "device" else None
    rows = measure_roofline(operators, measure == "device", roof.part if roof else None, list_tf32_users(rank, roof))
    whole = pc.sum(operators["device_self_ns" if measure == "device" else "self_ns"]).as_py() or 0
    return _cover(rows.append_column("share_frac", _share(rows["time_ns"], whole)), measure, operators)


def tabulate_members(rank: RankRun, key: str, name: str, group: GroupTable, steps: StepRange | None) -> pa.Table:
    """Sum the operators of one type or module: rows whose column `key` is `name`. Shares are of the whole `group`."""
    operators = within_steps(read_operators(rank, (key,) if key == "module" else ()), steps)
    of = pc.fill_null(operators[key].cast(pa.string()), NO_MODULE)
    members = _complete(sum_operators(operators.filter(pc.equal(of, name)), ("name", "type")), operators, group.measure)
    own = "device_self_ns" if group.measure == "device" else "self_ns"
    whole = pc.sum(group.rows[own]).as_py() or 0
    share = _share(members.rows[own], whole)
    return members.rows.set_column(members.rows.column_names.index("share_frac"), "share_frac", share)


GROUPS: Mapping[str, Group] = {
    "types": Group("type", ("type",), tabulate_types),
    "operators": Group("name", ("name", "type"), tabulate_operators),
    "kernels": Group("name", ("name", "operator"), tabulate_kernels),
    "host": Group("name", ("name", "type"), tabulate_host),
    "modules": Group("module", ("module",), tabulate_modules),
    "roofline": Group("name", ("name", "type", "precision", "bound"), tabulate_roofline),
}


def has_modules(rank: RankRun) -> bool:
    """Return whether any operator has a module. Raises as `RankRun.table` does."""
    modules = rank.table("operators", ("module",))["module"]
    return bool(modules.null_count < len(modules))


def within_steps(rows: pa.Table, steps: StepRange | None) -> pa.Table:
    if steps is None:
        return rows
    inside = pc.and_(pc.greater_equal(rows["step"], steps.first), pc.less_equal(rows["step"], steps.last))
    return rows.filter(pc.fill_null(inside, False))


def _complete(summed: pa.Table, operators: pa.Table, measure: Measure | None = None) -> GroupTable:
    """Return `summed` with mean and share columns, of the given measure. The default measure is the device if the
    device had work, else the host.
    """
    if measure is None:
        measure = "device" if (pc.sum(summed["device_self_ns"]).as_py() or 0) > 0 else "host"
    total, own = ("device_total_ns", "device_self_ns") if measure == "device" else ("total_ns", "self_ns")
    calls = pc.cast(summed["count"], pa.float64())
    mean = pc.divide(pc.cast(summed[total], pa.float64()), pc.if_else(pc.equal(calls, 0.0), None, calls))
    rows = summed.append_column("mean_ns", mean).append_column("share_frac", _share(summed[own]))
    return _cover(rows, measure, operators)


def _share(own: pa.ChunkedArray, whole: int | None = None) -> pa.ChunkedArray:
    whole = pc.sum(own).as_py() or 0 if whole is None else whole
    values = pc.cast(own, pa.float64())
    return pc.divide(values, float(whole)) if whole > 0 else pc.multiply(values, 0.0)


def _cover(rows: pa.Table, measure: Measure, source: pa.Table) -> GroupTable:
    numbers = pc.unique(source["step"])
    steps = tuple(sorted(number for number in numbers.to_pylist() if number is not None))
    return GroupTable(rows, measure, steps, numbers.null_count > 0)


SEPARATOR = "."


@dataclass(frozen=True)
class ModuleNode:
    """One module; parents precede their children. Times are self times of operators, summed over the steps that were
    chosen, so a level sums to the level above.

    `device_ns` and `host_ns` include inner modules; `own_device_ns` and `own_host_ns` do not. `share_frac` is of the
    total, on the device if the device had work.
    """

    path: str
    name: str
    depth: int
    device_ns: int
    host_ns: int
    own_device_ns: int
    own_host_ns: int
    share_frac: float


def build_module_tree(rank: RankRun, steps: StepRange | None = None) -> tuple[ModuleNode, ...]:
    """Return the modules in tree order, the longest first on every level, in all steps if `steps` is None. Raises as
    `RankRun.table` does.
    """
    group = tabulate_modules(rank, steps)
    columns = (group.rows[name].to_pylist() for name in ("module", "device_self_ns", "self_ns"))
    own = {str(module): (device or 0, host or 0) for module, device, host in zip(*columns, strict=True)}
    whole: dict[str, tuple[int, int]] = {}
    for path, (device, host) in own.items():
        for above in _list_ancestors(path):
            known = whole.get(above, (0, 0))
            whole[above] = (known[0] + device, known[1] + host)
    side = 0 if group.measure == "device" else 1
    total = sum(times[side] for times in own.values()) or 1
    ordered = sorted(whole, key=lambda path: [(-whole[a][side], a) for a in _list_ancestors(path)])
    return tuple(
        ModuleNode(
            path=path,
            name=path if path == NO_MODULE else path.rsplit(SEPARATOR, 1)[-1],
            depth=len(_list_ancestors(path)) - 1,
            device_ns=whole[path][0],
            host_ns=whole[path][1],
            own_device_ns=own.get(path, (0, 0))[0],
            own_host_ns=own.get(path, (0, 0))[1],
            share_frac=whole[path][side] / total,
        )
        for path in ordered
    )


def _list_ancestors(path: str) -> list[str]:
    if path == NO_MODULE:
        return [path]
    pieces = path.split(SEPARATOR)
    return [SEPARATOR.join(pieces[: length + 1]) for length in range(len(pieces))]
