"""The user's lines over the run: their time in each third of it, and how many threads of the process ran meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.phases import PHASE_NAMES
from profiler_server.analysis.stacks.frames import Frame, StackParser
from profiler_server.facts.case import LineCourse
from profiler_server.facts.steps import Steps, read_column

_THIRDS = 3
K = TypeVar("K")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Third:
    """A third of the averaged steps: its start, the step in its middle, and the phases of its mean step."""

    start_ns: int
    step: int
    phases_ns: Mapping[str, float]


def part_steps(steps: Steps) -> tuple[Third, ...]:
    kept = np.flatnonzero(steps.selection.kept)
    starts = read_column(steps.rows, "start_ns")
    phases = {name: read_column(steps.rows, f"{name}_ns") for name in PHASE_NAMES}
    return tuple(
        Third(
            int(starts[part[0]]),
            int(steps.selection.step[part[len(part) // 2]]),
            {name: float(times[part].mean()) for name, times in phases.items()},
        )
        for part in np.array_split(kept, _THIRDS)
        if len(part)
    )


def read_line_course(
    rows: pa.Table, thirds: Sequence[Third], parser: StackParser, find_key: Callable[[tuple[Frame, ...]], K | None]
) -> dict[K, LineCourse]:
    """Return the course of each key. `rows` are the averaged samples of the training thread in known phases."""
    if not rows.num_rows or len(thirds) < _THIRDS:
        return {}
    texts = rows["stack"].cast(pa.string()).to_pylist()
    known = {text: find_key(parser.parse(text)) for text in set(texts)}
    names: list[K] = list(dict.fromkeys(key for key in known.values() if key is not None))
    codes: dict[K | None, int] = {key: code for code, key in enumerate(names)}
    of_row = np.array([codes.get(known[text], len(names)) for text in texts])
    times, variance = _measure(rows, thirds, of_row, len(names) + 1)
    steps_ns = [sum(third.phases_ns.values()) for third in thirds]
    asleep, threads = _count_threads(rows, of_row, len(names) + 1)
    return {
        key: LineCourse(
            times_ns=(float(times[0, code]), float(times[1, code]), float(times[2, code])),
            error_ns=float(np.sqrt(variance[0, code] + variance[2, code])),
            steps=(thirds[0].step, thirds[-1].step),
            rest_ns=(float(steps_ns[0] - times[0, code]), float(steps_ns[-1] - times[2, code])),
            asleep_frac=asleep[code],
            threads=threads[code],
        )
        for code, key in enumerate(names)
    }


def _measure(
    rows: pa.Table, thirds: Sequence[Third], of_row: npt.NDArray[np.int64], keys: int
) -> tuple[Floats, Floats]:
    """Return the time of each key in the mean step of each third, and its variance by the number of samples."""
    middle = rows["start_ns"].to_numpy() + rows["duration_ns"].to_numpy() // 2
    third = np.clip(np.searchsorted([part.start_ns for part in thirds], middle, side="right") - 1, 0, None)
    places = {name: at for at, name in enumerate(PHASE_NAMES)}
    phase = np.array([places.get(name, 0) for name in rows["phase"].cast(pa.string()).to_pylist()])
    counts = np.zeros((_THIRDS, len(PHASE_NAMES), keys))
    np.add.at(counts, (third, phase, of_row), rows["samples"].to_numpy())
    totals = counts.sum(2, keepdims=True)
    spent = np.array([[part.phases_ns[name] for name in PHASE_NAMES] for part in thirds])[:, :, None]
    share = (counts + 1) / (totals + 2)  # so that a share of no sample is not sure
    variance = share * (1 - share) / np.maximum(totals, 1) * spent**2
    return (counts / np.maximum(totals, 1) * spent).sum(1), variance.sum(1)


def _count_threads(
    rows: pa.Table, of_row: npt.NDArray[np.int64], keys: int
) -> tuple[list[float | None], list[float | None]]:
    """Return for each key the share of samples in which the training thread slept, and how many threads of the process ran."""
    seen = pc.is_valid(rows["running"]).to_numpy()
    sums = [
        np.bincount(of_row[seen], pc.fill_null(rows[name], 0).to_numpy()[seen], keys)
        for name in ("samples", "asleep", "running")
    ]
    found = [
        (slept / samples if samples else None, ran / samples if samples else None)
        for samples, slept, ran in zip(*(each.tolist() for each in sums), strict=True)
    ]
    return [slept for slept, _ in found], [ran for _, ran in found]
