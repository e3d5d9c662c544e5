"""The operators of the user's lines, and the time of these lines over the run.

The samples of a detailed window are joined with its operators by time. In a window, a sample is taken about every
millisecond, or every few on a busy host. An operator belongs to the line of the sample that was taken in it. Without one,
it belongs to the line of the operators that have the same neighbours, because a loop calls the same operators in the same
order; else to the line of the sample that is nearest to its middle. A backward node belongs to the
line of the operator that made it. PyTorch numbers the nodes: the operator that makes node n is the last operator with
the number n. A gradient that is taken with its graph makes nodes, too, inside of the nodes that it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import digits
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Floats, Ints, Mask, unite
from collector.format.phases import PHASE_NAMES
from collector.format.run import RankRun
from profiler_server.analysis.recorded_facts import read_repeated_nodes, read_spare_nodes, read_unused_gradients
from profiler_server.analysis.stacks.frames import Frame, K, number_stacks
from profiler_server.diagnosis.limits.stacks import JOINED_NS, LEAST_DENSE, NEIGHBOURS_FRAC, UNUSED_PART, UNUSED_STEPS
from profiler_server.facts.case import LineCourse, LineOperator, LineWork
from profiler_server.facts.machine import RepeatedNodes
from profiler_server.facts.steps import Steps, UnusedGradients, read_column

_NODE = "autograd::engine::evaluate_function: "
_COLUMNS = ("id", "track", "depth", "start_ns", "duration_ns", "name", "category", "sequence", "parent")
_MOST_OPERATORS, _NEIGHBOURS = 4, 2


def read_line_work(
    rank: RankRun, rows: pa.Table, find_key: Callable[[tuple[Frame, ...]], K | None]
) -> dict[K, LineWork]:
    """Return the operators that the functions or lines of each key call. `rows` are the samples taken in quick
    succession in detailed windows; `find_key` returns the key of a stack, None for no key.
    """
    trainer = rows.filter(pc.equal(rows["replica"], -1)).sort_by("start_ns")
    if trainer.num_rows < LEAST_DENSE or rank.status("slices").state != "there":
        return {}
    slices = rank.table("slices", _COLUMNS)
    operators = slices.filter(pc.equal(slices["category"].cast(pa.string()), "operator"))
    if not operators.num_rows:
        return {}
    steps = sum(window.last_step - window.first_step + 1 for window in rank.manifest.windows)
    names, of_sample = number_stacks(trainer, find_key)
    kinds = (read_unused_gradients, read_repeated_nodes, read_spare_nodes)
    noted = [read(rank.manifest.facts) for read in kinds]
    weights = [weigh_nodes(operators, each.nodes if each is not None else ()) for each in noted]
    return _join(operators, weights, trainer["start_ns"].to_numpy(), of_sample, names, max(steps, 1))


def read_unused_share(rank: RankRun, unused: UnusedGradients) -> float | None:
    """Return the share of the backward that is spent in nodes computing only unused gradients; None without a window."""
    if not unused.nodes or rank.status("slices").state != "there":
        return None
    slices = rank.table("slices", ("name", "start_ns", "duration_ns", "sequence", "step"))
    step = slices["step"]
    within = pc.and_(pc.greater_equal(step, unused.step), pc.less(step, unused.step + UNUSED_STEPS))
    nodes = slices.filter(pc.and_(within, pc.starts_with(slices["name"].cast(pa.string()), _NODE)))
    total_ns = pc.sum(nodes["duration_ns"]).as_py()
    return float(weigh_nodes(nodes, unused.nodes) @ nodes["duration_ns"].to_numpy()) / total_ns if total_ns else None


def read_repeated_time(rank: RankRun, repeated: RepeatedNodes) -> float | None:
    """Return the time, in ns, of what the step computes again, with its backward; None without a window.

    Nodes that ran before in the step count without the operators that made them.
    """
    if rank.status("slices").state != "there":
        return None
    slices = rank.table("slices", (*_COLUMNS, "step"))
    is_operator = pc.equal(slices["category"].cast(pa.string()), "operator")
    operators = slices.filter(pc.and_(is_operator, pc.equal(slices["step"], repeated.step)))
    if not operators.num_rows:
        return None
    parts, weights = _part(operators), weigh_nodes(operators, repeated.nodes)
    first = weigh_nodes(operators, [entry for entry in repeated.nodes if not entry[2]])
    forward_ns = _sum_made(parts, first, np.zeros(operators.num_rows, np.int64), 1)[0]
    return float(forward_ns + weights @ parts.length)


def weigh_nodes(rows: pa.Table, ranges: Sequence[tuple[int, int, int, int]]) -> Floats:
    """Return for each row the share of its work that `ranges` names, as those of `UnusedGradients` and `RepeatedNodes`
    do. The rows of other nodes get 0.
    """
    weights = np.zeros(rows.num_rows)
    is_node = pc.starts_with(rows["name"].cast(pa.string()), _NODE)
    chosen = np.flatnonzero(pc.and_(is_node, pc.is_valid(rows["sequence"])).to_numpy(zero_copy_only=False))
    if not ranges or not len(chosen):
        return weights
    number = rows["sequence"].take(chosen).to_numpy()
    order = np.lexsort((rows["start_ns"].take(chosen).to_numpy(), number))
    chosen, number = chosen[order], number[order]
    _, first, place = np.unique(number, return_index=True, return_inverse=True)
    time = np.arange(len(number)) - first[place]
    for each in {entry[2] for entry in ranges}:
        begins, ends, _, kinds = np.array(sorted(entry for entry in ranges if entry[2] == each)).T
        at = np.searchsorted(begins, number, side="right") - 1
        inside = (time == each) & (at >= 0) & (number <= ends[at])
        weights[chosen[inside]] = np.where(kinds[at[inside]] == 2, 1.0, UNUSED_PART)
    return weights


@dataclass(frozen=True)
class _Parts:
    """Operators by their part in a training step: calls of the forward (`forward`), calls that make nodes (`making`), and
    nodes of a backward. `maker` has, for each node, the row of the operator that made it, -1 if unknown.
    """

    name: np.ndarray[Any, np.dtype[np.object_]]
    start: Ints
    length: Ints
    is_node: Mask
    forward: Mask
    making: Mask
    maker: Ints


def _part(operators: pa.Table) -> _Parts:
    name = np.array(operators["name"].cast(pa.string()).to_pylist(), object)
    start, length = (operators[column].to_numpy() for column in ("start_ns", "duration_ns"))
    track, depth = operators["track"].to_numpy(), operators["depth"].to_numpy()
    sequence = pc.fill_null(operators["sequence"], -1).to_numpy()
    texts = name.astype(str)
    is_node = np.char.startswith(texts, _NODE)
    in_node = is_node | _mark_inside(operators, is_node)
    main = _find_main(track[~in_node], length[~in_node])
    # A backward that makes a graph, for second derivatives, makes nodes as the forward does.
    making = (track == main) & ~is_node & (sequence >= 0) & ~np.char.endswith(np.char.rstrip(texts, digits), "Backward")
    maker = _find_makers(sequence, start, depth, making, is_node)
    return _Parts(name, start, length, is_node, (track == main) & ~in_node, making, maker)


def _sum_made(parts: _Parts, weights: Floats, group: Ints, groups: int) -> Floats:
    """Return the time of the operators whose nodes have a weight of 1, by their `group`."""
    made = np.unique(parts.maker[(weights[parts.is_node] == 1.0) & (parts.maker >= 0)])
    made = made[group[made] >= 0]
    return np.bincount(group[made], parts.length[made], groups).astype(np.float64)


def _join(
    operators: pa.Table, weights: Sequence[Floats], seen: Ints, of_sample: Ints, names: Sequence[K], steps: int
) -> dict[K, LineWork]:
    parts = _part(operators)
    name, start, length, is_node = parts.name, parts.start, parts.length, parts.is_node
    forward, making, maker = parts.forward, parts.making, parts.maker
    of_operator = np.full(len(name), -1)
    of_operator[forward | making] = _take_nearest((start + length // 2)[forward | making], seen, of_sample)
    # Ranges of the user's may lie around operators: no operator is the parent of the outermost ones.
    outermost = forward & ~np.isin(pc.fill_null(operators["parent"], -1).to_numpy(), operators["id"].to_numpy())
    of_operator[outermost] = _take_by_neighbours(parts, outermost, of_operator[outermost], seen, of_sample)
    inner = np.flatnonzero(forward & ~outermost)
    around = _find_outermost(start, length, outermost, inner)
    of_operator[inner[around >= 0]] = of_operator[around[around >= 0]]
    of_node = np.where(maker >= 0, of_operator[maker], -1) + 1
    runner = _take_nearest((start + length // 2)[is_node], seen, of_sample) + 1
    apart = np.where(of_node == runner, 0, of_node)  # a line that runs what it made has the time in its own share
    backward = np.bincount(apart, length[is_node], len(names) + 1)[1:]
    # The last place is for stacks without a key.
    unused, *rest = (np.bincount(of_node, (each * length)[is_node], len(names) + 2)[1:] for each in weights)
    made = (_sum_made(parts, each, of_operator, len(names) + 1) for each in weights[1:])
    again, spare = (ours / max(float(ours.sum()), 1.0) for ours in map(np.add, rest, made))
    in_backward = max(int(length[is_node].sum()), 1)
    called_by = _find_outermost(start, length, outermost, maker)
    backward_ns = np.bincount(called_by[called_by >= 0], length[is_node][called_by >= 0], len(name))
    inside = _mark_covered(seen, start[outermost], length[outermost])
    found = {}
    for code, key in enumerate(names):
        mine = of_sample == code
        calls = outermost & (of_operator == code)
        found[key] = LineWork(
            operators=_list_operators(name[calls], length[calls], backward_ns[calls], steps, in_backward),
            calls=float(calls.sum()) / steps,
            mean_ns=float(length[calls].mean()) if calls.any() else 0.0,
            operator_frac=float(inside[mine].mean()) if mine.any() else 0.0,
            backward_frac=float(backward[code]) / in_backward,
            unused_frac=float(unused[code]) / in_backward,
            again_frac=float(again[code]),
            spare_frac=float(spare[code]),
        )
    return found


def _mark_inside(operators: pa.Table, is_node: Mask) -> Mask:
    """Mark the operators that begin within a backward node of their track."""
    track, start, length = (operators[name].to_numpy() for name in ("track", "start_ns", "duration_ns"))
    inside = np.zeros(operators.num_rows, np.bool_)
    for each in np.unique(track[is_node]):
        here, nodes = track == each, is_node & (track == each)
        inside[here] = unite(start[nodes], (start + length)[nodes]).contains(start[here])
    return inside


def _find_main(track: Ints, length: Ints) -> int:
    """Return the track of the training thread: the track with the most time in operators outside of backward."""
    tracks, places = np.unique(track, return_inverse=True)
    return int(tracks[np.argmax(np.bincount(places, length))]) if len(tracks) else -1


def _take_nearest(times: Ints, seen: Ints, of_sample: Ints) -> Ints:
    after = np.clip(np.searchsorted(seen, times), 0, len(seen) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(np.abs(seen[after] - times) < np.abs(times - seen[before]), after, before)
    return np.where(np.abs(seen[nearest] - times) <= JOINED_NS, of_sample[nearest], -1)


def _take_by_neighbours(parts: _Parts, outermost: Mask, nearest: Ints, seen: Ints, of_sample: Ints) -> Ints:
    """Return the line of each outermost operator, `nearest` where neither a sample in it nor its neighbours tell it."""
    rows = np.flatnonzero(outermost)
    order = np.argsort(parts.start[rows], kind="stable")
    rows = rows[order]
    if not len(rows):
        return nearest
    _, code = np.unique(parts.name[rows].astype(str), return_inverse=True)
    padded = np.pad(code, _NEIGHBOURS, constant_values=-1)
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * _NEIGHBOURS + 1)
    # One number for each row: five digits in a base of more than the number of names.
    base = int(code.max()) + 2
    _, alike = np.unique((around + 1) @ base ** np.arange(2 * _NEIGHBOURS + 1), return_inverse=True)
    at = np.searchsorted(parts.start[rows], seen, side="right") - 1
    inside = (at >= 0) & (seen < (parts.start + parts.length)[rows][np.maximum(at, 0)])
    votes = np.zeros((int(alike.max()) + 1, int(of_sample.max(initial=0)) + 1))
    np.add.at(votes, (alike[at[inside]], of_sample[inside]), 1)
    most, clear = votes.argmax(1), votes.max(1) > NEIGHBOURS_FRAC * np.maximum(votes.sum(1), 1)
    found = nearest.copy()
    found[order] = np.where(clear[alike], most[alike], nearest[order])
    found[order[at[inside]]] = of_sample[inside]
    return found


def _find_makers(sequence: Ints, start: Ints, depth: Ints, making: Mask, is_node: Mask) -> Ints:
    """Return for each backward node the row of the operator that made it: the last operator with the node's number. -1
    stands for an unknown operator."""
    chosen = np.flatnonzero(making)
    order = chosen[np.lexsort((depth[chosen], start[chosen], sequence[chosen]))]
    at = np.searchsorted(sequence[order], sequence[is_node], side="right") - 1
    found = order[at] if len(order) else np.full(len(at), -1)
    return np.where((at >= 0) & (sequence[found] == sequence[is_node]), found, -1)


def _find_outermost(start: Ints, length: Ints, outermost: Mask, rows: Ints) -> Ints:
    """Return for each operator of `rows` the index of the outermost operator during which it began, -1 if none; an
    operator of -1 gives -1.
    """
    order = np.flatnonzero(outermost)
    if not len(order):
        return np.full(len(rows), -1)
    order = order[np.argsort(start[order], kind="stable")]
    at = np.searchsorted(start[order], start[rows], side="right") - 1
    found = order[np.maximum(at, 0)]
    return np.where((rows >= 0) & (at >= 0) & (start[rows] < start[found] + np.maximum(length[found], 1)), found, -1)


def _mark_covered(seen: Ints, start: Ints, length: Ints) -> Mask:
    if not len(start):
        return np.zeros(len(seen), np.bool_)
    order = np.argsort(start)
    at = np.searchsorted(start[order], seen, side="right") - 1
    return (at >= 0) & (seen < (start + length)[order][np.maximum(at, 0)])


def _list_operators(
    name: np.ndarray[Any, np.dtype[np.object_]], length: Ints, backward_ns: Floats, steps: int, in_backward: int
) -> tuple[LineOperator, ...]:
    kinds, place = np.unique(name.astype(str), return_inverse=True)
    count = np.maximum(np.bincount(place, minlength=len(kinds)), 1)
    forward, backward = (np.bincount(place, part, len(kinds)) for part in (length, backward_ns))
    columns = (kinds, count / steps, forward / count, backward / count, backward / in_backward)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return tuple(sorted((LineOperator(*row) for row in rows), key=lambda entry: -entry.whole_ns)[:_MOST_OPERATORS])


_THIRDS = 3


@dataclass(frozen=True)
class Third:
    """A third of the steady steps: its start, the number of its middle step, and its mean time per step by phase."""

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
    rows: pa.Table, thirds: Sequence[Third], find_key: Callable[[tuple[Frame, ...]], K | None]
) -> dict[K, LineCourse]:
    """Return how the time of each key (a function or line) changes over the run; empty without samples. `rows` are
    samples of the training thread in the steady steps, in known phases.
    """
    if not rows.num_rows or len(thirds) < _THIRDS:
        return {}
    names, of_row = number_stacks(rows, find_key)
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


def _measure(rows: pa.Table, thirds: Sequence[Third], of_row: Ints, keys: int) -> tuple[Floats, Floats]:
    """Return the time of each key in the mean step of each third, and the variance of this time, from the number of
    samples.
    """
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


def _count_threads(rows: pa.Table, of_row: Ints, keys: int) -> tuple[list[float | None], list[float | None]]:
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
