"""Find the steps of a trace.

The sources are tried in this order: markers (`ProfilerStep#N`); the steps of an optimizer; without an optimizer, the
batches of a loader; a repeated annotation; repeated launches. If the trace has none of them, the whole trace is one
step, with a warning. A user can choose the steps of an optimizer, the whole trace, or a pattern for slice names.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from collector.format.intervals import Ints, Mask
from collector.format.schema.errors import TraceError
from collector.traces.format import StepBounds
from collector.traces.kineto.classify.kinds import Kind, read_step
from collector.traces.kineto.classify.trace import NEVER_NS, Trace
from collector.traces.kineto.steps.model import BACKWARD, CUT_OFF_SHARE, LOADER, MANY_PER_STEP, OPTIMIZER_STEP, Steps

PATTERN_CONFIDENCE = 0.5
_LEAST_REPEATS = 3
_LEAST_LAUNCHES = 3
_LEAST_SHARE = 0.8
_LONGEST = 1 << 20


_Told = tuple[str, float]
"""The mark by which steps are found, and how sure that is."""
_MARKERS: _Told = ("step markers", 1.0)
_OPTIMIZER_STEPS: _Told = ("optimizer steps", 0.9)
_WHOLE: _Told = ("whole", 0.0)


def _from_pattern(trace: Trace) -> Steps | None:
    """Return each repeat of a sequence of work as a step; None without such a sequence. The work is that of
    `_list_work`.

    The layers of a single pass repeat too. But a training loop repeats all of its work. So nearly every name must occur
    once per repeat, or a fixed number of times."""
    rows = _list_work(trace)
    if not 2 * _LEAST_REPEATS <= len(rows) <= _LONGEST:
        return None
    names, sequence, counts = np.unique(trace.columns.name[rows], return_inverse=True, return_counts=True)
    for repeats in np.unique(counts[counts >= _LEAST_REPEATS]).tolist():
        regular = (counts % repeats == 0).mean()
        if regular < _LEAST_SHARE:
            continue
        anchor = int(sequence[np.flatnonzero(counts[sequence] == repeats)[0]])
        at = np.flatnonzero(sequence == anchor)
        if np.median(np.diff(at)) < _LEAST_LAUNCHES:
            continue
        equal_frac = _compare(sequence, at)
        if equal_frac >= _LEAST_SHARE:
            starts, name = trace.find_launch_ns(rows[at]), trace.names[int(names[anchor])]
            how = f"launches that repeat, each time from {name[:80]!r} on"
            told = how, round(PATTERN_CONFIDENCE * equal_frac, 2)
            return _between(trace, starts, told, -1) if (np.diff(starts) > 0).all() else None
    return None


def _list_work(trace: Trace) -> Ints:
    """Return, by start, the kernels of the busiest stream; without any, top operators of the busiest thread."""
    rows = trace.sort(trace.is_any(Kind.KERNEL, Kind.COLLECTIVE))
    if not len(rows):
        rows = trace.sort(trace.is_operator & (trace.caller < 0))
    found: Ints = rows[trace.lanes.track[rows] == trace.find_busiest(rows)]
    return found


def _compare(sequence: Ints, at: Ints) -> float:
    """Return the share of repeats (`at` has their starts) with the same names in the same order."""
    stretches = [stretch.tobytes() for stretch in np.split(sequence, at)[1:]]
    most = max(stretches.count(stretch) for stretch in set(stretches[: _LEAST_REPEATS + 1]))
    # The part after the last repeat may be more than the loop, so the last stretch is not required to match.
    return min(most / max(len(stretches) - 1, 1), 1.0) if len(stretches) > _LEAST_REPEATS - 1 else 0.0


LOADER_CONFIDENCE = 0.8
ANNOTATION_CONFIDENCE = 0.6
_COVERED_SHARE = 0.5


_COUNTER = re.compile(r"\d+")


def find_steps(trace: Trace, base_ns: int, given: StepBounds | None = None, chosen: str | None = None) -> Steps:
    """Return the steps of a trace. `given` are steps known from the run; `base_ns` is the offset from trace times to
    Unix ns.

    `chosen` is `optimizer`, `whole` or a regular expression for the names of steps. Raises TraceError if the trace has
    no such steps.
    """
    if given is not None:
        starts, ends = (
            np.array(times_ns, np.int64) - base_ns for times_ns in (given.starts_unix_ns, given.ends_unix_ns)
        )
        return _make(starts, ends, ("the run", 1.0), number=np.array(given.numbers))
    if chosen == "whole":
        return replace(_whole(trace), how="hand (the whole trace)", confidence_frac=1.0, own=0)
    if chosen is not None:
        own = _from_markers(trace) or _from_optimizer(trace)
        return _add_device_work(trace, replace(_from_choice(trace, chosen), own=len(own) if own else 0))
    told = _from_markers(trace) or _from_optimizer(trace)
    found = told or _from_loader(trace) or _from_annotation(trace) or _from_pattern(trace)
    if found is not None:
        return _add_device_work(trace, found)
    return _whole(trace)


def _from_markers(trace: Trace) -> Steps | None:
    # Several threads may carry step markers. The first thread that carries them counts.
    rows = _take_apart(trace, trace.sort(trace.kind == Kind.STEP))
    if not len(rows):
        return None
    numbers = np.array([read_step(trace.names[code]) for code in trace.columns.name[rows].tolist()])
    thread = int(trace.lanes.track[rows[0]])
    return _make(trace.start_ns[rows], trace.end_ns[rows], _MARKERS, thread, numbers)


def _from_optimizer(trace: Trace) -> Steps | None:
    rows = np.flatnonzero(trace.is_host_work & trace.find_named(OPTIMIZER_STEP.match))
    if len(rows) < 2:
        return None
    ends = np.sort(trace.end_ns[rows])
    ends = ends[np.append(_find_other_work(trace, ends), True)]
    if len(ends) < 2:
        return None
    first = int(trace.start_ns[trace.is_host].min())
    starts = np.concatenate([[first], ends[:-1]])
    return _make(starts, ends, _OPTIMIZER_STEPS, int(trace.lanes.track[rows[0]]))


def _find_other_work(trace: Trace, ends: Ints) -> Mask:
    """Return for each gap between two ends of optimizers whether a new step begins in this gap.

    A step may have several optimizers. A step begins with work that every step does: a fetched batch, or else a
    backward. If the trace has neither, the length of the gap decides. Length is the last resort, because the first
    steps of a trace may be much longer, or shorter, than later steps.
    """
    fetches, backwards = (
        np.diff(np.searchsorted(np.sort(trace.start_ns[trace.find_named(pattern.match)]), ends)) > 0
        for pattern in (LOADER, BACKWARD)
    )
    if MANY_PER_STEP * fetches.sum() >= backwards.sum() and fetches.any():
        return fetches
    gaps = np.diff(ends)
    return backwards if backwards.any() else gaps > max(int(np.median(gaps)) // 2, 1)


def _from_loader(trace: Trace) -> Steps | None:
    """Return each batch of a loader as a step, from fetch to fetch, in a trace without optimizer; None without batches.

    The last fetch of a loop finds no more data and is no batch. It contains no operator, and the operator after it
    differs from the operator after a batch. The fetch of a batch that was already ready contains no operator, either.
    """
    is_fetch = trace.is_host & trace.find_named(LOADER.match)
    if is_fetch.sum() < 2 or (trace.is_host_work & trace.find_named(OPTIMIZER_STEP.match)).any():
        return None
    rows, track = _pick_busiest(trace, is_fetch)
    starts, ends = trace.start_ns[rows], trace.end_ns[rows]
    until = np.append(starts[1:], int(trace.end_ns[trace.is_host].max()))
    work = trace.sort(trace.is_operator & (trace.lanes.track == track))
    first, behind, end = (np.searchsorted(trace.start_ns[work], times) for times in (starts, ends, until))
    computes, makes = end > behind, behind > first
    follows = np.where(computes, trace.columns.name[np.append(work, 0)[behind]], -1)
    sure = computes & makes
    sure = sure if sure.any() else computes & (np.arange(len(rows)) < len(rows) - 1)
    is_batch = computes & (sure | np.isin(follows, follows[sure]))
    if is_batch.sum() < 2:
        return None
    return _make(starts[is_batch], until[is_batch], ("the batches of a loader", LOADER_CONFIDENCE), track)


def _pick_busiest(trace: Trace, mask: Mask) -> tuple[Ints, int]:
    """Choose the track with most slices of the mask. Return its slices that do not overlap, and the track's number."""
    rows = trace.sort(mask)
    track = trace.find_busiest(rows)
    return _take_apart(trace, rows[trace.lanes.track[rows] == track]), track


def _take_apart(trace: Trace, rows: Ints) -> Ints:
    """Return those of `rows` that do not overlap an earlier slice. `rows` must be sorted by start."""
    ends = np.maximum.accumulate(trace.end_ns[rows])
    found: Ints = rows[np.append(np.full(min(len(rows), 1), True), trace.start_ns[rows][1:] >= ends[:-1])]
    return found


def _from_annotation(trace: Trace) -> Steps | None:
    """Return each repeat of an annotation that covers most of one thread as a step; digits do not count."""
    rows = trace.sort((trace.kind == Kind.ANNOTATION) & ~trace.find_named(LOADER.match))
    if len(rows) < _LEAST_REPEATS:
        return None
    stems: dict[str, int] = {}
    stem_of_name = np.array([stems.setdefault(_COUNTER.sub("#", name), len(stems)) for name in trace.names], np.int64)
    keys = trace.lanes.track[rows] * len(stems) + stem_of_name[trace.columns.name[rows]]
    most = int(_COVERED_SHARE * int(trace.end_ns[trace.is_host].max() - trace.start_ns[trace.is_host].min()))
    best: Ints | None = None
    for key in np.unique(keys):
        group = rows[keys == key]
        covered = int(trace.columns.duration_ns[group].sum())
        if len(group) >= _LEAST_REPEATS and covered > most and len(_take_apart(trace, group)) == len(group):
            best, most = group, covered
    if best is None:
        return None
    name, thread = trace.names[int(trace.columns.name[best[0]])], int(trace.lanes.track[best[0]])
    told = f"the annotation {name[:80]!r}, which repeats", ANNOTATION_CONFIDENCE
    return _make(trace.start_ns[best], trace.end_ns[best], told, thread)


def _from_choice(trace: Trace, chosen: str) -> Steps:
    if chosen == "optimizer":
        found = _from_optimizer(trace)
        if found is None:
            raise TraceError("--steps-from optimizer: the trace has no two steps of an optimizer")
        return replace(found, how="hand (optimizer steps)", confidence_frac=1.0)
    try:
        pattern = re.compile(chosen)
    except re.error as error:
        raise TraceError(f"--steps-from {chosen[:80]!r} is not a regular expression: {error}") from None
    is_chosen = trace.is_host & trace.find_named(pattern.search)
    if not is_chosen.any():
        raise TraceError(f"--steps-from {chosen[:80]!r} fits the name of no slice on the host")
    rows, thread = _pick_busiest(trace, is_chosen)
    told = f"hand (names that fit {chosen[:80]!r})", 1.0
    starts, ends = trace.start_ns[rows], trace.end_ns[rows]
    begins = trace.find_named(LOADER.match)[rows].all()
    if not begins and (ends - starts).sum() >= _COVERED_SHARE * (ends[-1] - starts[0]):
        return _make(starts, ends, told, thread)
    return _between(trace, starts, told, thread)


def _between(trace: Trace, starts: Ints, told: _Told, thread: int) -> Steps:
    """Return the steps from each start to the next; the last one ends with the last work of the trace."""
    work = trace.is_host if trace.is_host.any() else trace.is_device_work
    ends = np.append(starts[1:], max(int(trace.end_ns[work].max()), int(starts[-1]) + 1))
    return _make(starts, ends, told, thread)


def _whole(trace: Trace) -> Steps:
    work = trace.is_host_work | trace.is_device_work | (trace.kind == Kind.RUNTIME)
    rows = np.flatnonzero(work if work.any() else np.ones(len(trace.columns), bool))
    return _make(np.array([trace.start_ns[rows].min()]), np.array([trace.end_ns[rows].max()]), _WHOLE)


def _make(start: Ints, end: Ints, told: _Told, thread: int = -1, number: Ints | None = None) -> Steps:
    """Return steps with these bounds; without `number`, numbered from 1 as steps without markers."""
    numbers = (np.arange(1, len(start) + 1) if number is None else number).astype(np.int64)
    return Steps(numbers, start, end, start, end, *told, number is not None, thread)


def _add_device_work(trace: Trace, steps: Steps) -> Steps:
    """Return the steps, each extended to the end of its last device work. Last steps that were cut off are left out."""
    last = np.full(len(steps), np.iinfo(np.int64).min)
    launched = np.zeros(len(steps), np.int64)
    for device in trace.find(trace.is_device_work):
        row = steps.locate(trace.find_launch_ns(device, NEVER_NS))
        inside = row >= 0
        np.maximum.at(last, row[inside], trace.end_ns[device[inside]])
        launched += np.bincount(row[inside], minlength=len(steps))
    ends = np.maximum.accumulate(np.maximum(steps.host_end_ns, last))
    previous = np.concatenate([steps.host_start_ns[:1], ends[:-1]])
    starts = np.maximum(previous, steps.host_start_ns)
    return _drop_cut_off(replace(steps, start_ns=starts, end_ns=ends), launched)


def _drop_cut_off(steps: Steps, launched: Ints) -> Steps:
    """Return the steps up to the last that launched enough device work; all steps without any device work."""
    busy = np.flatnonzero(launched)
    if not len(busy):
        return steps
    end = int(busy[-1]) + 1
    if end > 1 and launched[end - 1] < CUT_OFF_SHARE * launched[end - 2]:
        end -= 1
    fields = ("number", "host_start_ns", "host_end_ns", "start_ns", "end_ns")
    kept = {name: getattr(steps, name)[:end] for name in fields}
    return replace(steps, **kept, cut_off=tuple(steps.number[end:].tolist()))
