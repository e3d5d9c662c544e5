"""Sum up the detailed windows of a run for a script: one operator by name, and the device work of each step."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import unite
from collector.format.schema.errors import OptionError
from collector.format.schema.wording import format_number_of, suggest_nearest

if TYPE_CHECKING:
    import pandas as pd

OPERATOR_COLUMNS = ("name", "input_shapes", "count", "total_ns", "self_ns", "device_total_ns")
_SUMS = ("count", "total_ns", "self_ns", "device_total_ns")
DEVICE_WORK = ("kernel", "communication", "memcpy", "memset")
"""The categories of device work. Other spans of a stream, such as annotations and waits, only name or delay work."""


@dataclass(frozen=True)
class Operator:
    """The sums over all calls of one operator in the detailed windows (steps recorded with torch.profiler). `total_ns`
    is host time with callees, `self_ns` without; `mean_ns` is `total_ns` per call. `shapes` has one row per input
    shape, with the same sums and mean.
    """

    name: str
    count: int
    total_ns: int
    self_ns: int
    device_total_ns: int
    mean_ns: float
    shapes: pd.DataFrame

    def __str__(self) -> str:
        head = f"{self.name}: {format_number_of(self.count, 'call')}, {self.total_ns / 1e6:,.3f} ms, {self.mean_ns / 1e3:,.1f} µs each"
        return f"{head}\n{self.shapes.to_string(index=False)}"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(str(self).partition(chr(10))[0])}</p>{self.shapes.to_html(index=False)}"


def find_operator(operators: pa.Table, name: str) -> Operator:
    """Return the sums over the calls of the operator `name`. OptionError names the nearest existing name."""
    names = operators["name"].cast(pa.string())
    rows = operators.filter(pc.equal(names, name))
    if not rows.num_rows:
        known = pc.unique(names.combine_chunks()).to_pylist()
        hint = suggest_nearest(name, known, f"it has {len(known)} others", 0.4)
        raise OptionError(f"the detailed windows have no operator {name!r}; {hint}")
    grouped = rows.group_by("input_shapes", use_threads=False).aggregate([(key, "sum") for key in _SUMS])
    shapes = grouped.rename_columns({f"{key}_sum": key for key in _SUMS}).to_pandas()
    shapes["mean_ns"] = shapes["total_ns"] / shapes["count"]
    totals = {key: int(pc.sum(rows[key]).as_py()) for key in _SUMS}
    order = shapes.sort_values("total_ns", ascending=False, ignore_index=True)
    return Operator(name, mean_ns=totals["total_ns"] / max(totals["count"], 1), shapes=order, **totals)


def sum_executions(spans: pa.Table) -> pa.Table:
    """Return the work of each device in each step: step, device, count, start, total_ns, busy_ns and wait_ns.

    `spans` are device spans; only DEVICE_WORK in a step is included. total_ns runs from the start of the first work of
    the step on the device to the end of the last; busy_ns is the part of it in which any work ran, wait_ns the rest.
    """
    is_work = pc.is_in(spans["cat"].cast(pa.string()), pa.array(DEVICE_WORK))
    known = spans.filter(pc.and_(is_work, pc.and_(pc.is_valid(spans["step"]), pc.greater(spans["dur"], 0))))
    known = known.sort_by([("step", "ascending"), ("device", "ascending"), ("start", "ascending")])
    found: dict[str, list[int]] = {
        name: [] for name in ("step", "device", "count", "start", "total_ns", "busy_ns", "wait_ns")
    }
    step, device = known["step"].to_numpy(), pc.fill_null(known["device"], 0).to_numpy()
    cuts = np.flatnonzero((np.diff(step) != 0) | (np.diff(device) != 0)) + 1
    starts, lengths = known["start"].to_numpy(), known["dur"].to_numpy()
    for rows in np.split(np.arange(known.num_rows), cuts):
        if not rows.size:
            continue
        ran = unite(starts[rows], (starts + lengths)[rows])
        first, busy = int(ran.starts[0]), ran.length_ns
        total = int(ran.ends[-1]) - first
        values = (int(step[rows[0]]), int(device[rows[0]]), rows.size, first, total, busy, total - busy)
        for name, value in zip(found, values, strict=True):
            found[name].append(value)
    return pa.table({name: pa.array(values, pa.int64()) for name, values in found.items()})
