"""Find the steps of a trace.

Markers (`ProfilerStep#N`) come first; then the steps of an optimizer; then, where there is no optimizer, the batches of
a loader; then an annotation that repeats; then launches that repeat; and if there is none of them, the whole trace is one step and a warning says so. By hand, any of these can
be chosen, or the slices whose names fit a pattern.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from collector.format.intervals import Mask
from collector.format.schema.errors import TraceError
from collector.format.schema.manifest import Warn
from collector.format.schema.wording import format_number_of, format_percent
from collector.traces.format import StepBounds
from collector.traces.kineto.classify import Kind, read_step
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.marks import BACKWARD, LOADER, OPTIMIZER_STEP, are_named
from collector.traces.kineto.model import Trace
from collector.traces.kineto.patterns import PATTERN_CONFIDENCE, find_pattern

LOADER_CONFIDENCE = 0.8
ANNOTATION_CONFIDENCE = 0.6
_LEAST_REPEATS = 3
_COVERED_SHARE = 0.5
_MANY_PER_STEP = 2
CUT_OFF_SHARE = 0.8
"""A last step that launched fewer device events than this share of the one before is a part of one, and is left out.

A count, as torch-tb-profiler has it: an outlier makes the step before longer, but launches no more work.
"""


@dataclass(frozen=True)
class _Told:
    """What steps were told by, and how sure that is."""

    by: str
    confidence_frac: float


_MARKERS = _Told("step markers", 1.0)
_OPTIMIZER_STEPS = _Told("optimizer steps", 0.9)
_WHOLE = _Told("whole", 0.0)
_COUNTER = re.compile(r"\d+")


@dataclass(frozen=True)
class Steps:
    """Steps in time order, without overlap. `host_*` is what the host's marker covers; `start_ns`, `end_ns` the step.

    `cut_off` are the numbers of last steps that are incomplete, and are not among the steps. `thread` is the track of the
    training thread, -1 if none is known. `own` is how many steps the trace itself tells where others were chosen by hand,
    0 for none, None where none were chosen.
    """

    number: Ints
    host_start_ns: Ints
    host_end_ns: Ints
    start_ns: Ints
    end_ns: Ints
    how: str
    confidence_frac: float
    markers: bool
    thread: int = -1
    cut_off: tuple[int, ...] = ()
    own: int | None = None

    def __len__(self) -> int:
        return len(self.number)

    def locate(self, times_ns: Ints, host: bool = True) -> Ints:
        """Return the row of the step that each time lies in, -1 for none."""
        starts, ends = (self.host_start_ns, self.host_end_ns) if host else (self.start_ns, self.end_ns)
        if not len(starts):
            return np.full(len(times_ns), -1, np.int64)
        row = np.searchsorted(starts, times_ns, side="right") - 1
        return np.where((row >= 0) & (times_ns < ends[np.maximum(row, 0)]), row, -1)


def find_steps(trace: Trace, base_ns: int, given: StepBounds | None = None, chosen: str | None = None) -> Steps:
    """Find the steps. `given` are steps that the run knows itself; `base_ns` is what turns a time into unix ns.

    `chosen` is `optimizer`, `whole` or a regular expression for the names of steps. Raises TraceError where the trace
    has no such steps.
    """
    if given is not None:
        return _take_given(given, base_ns)
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


def describe_steps(steps: Steps) -> list[Warn]:
    """Return what a reader must know of how the steps were found."""
    warnings = []
    if steps.how == "whole":
        text = (
            "No step can be told apart in this trace, so all of it counts as one step. "
            "Call prof.step() after each step, or record more steps, to get figures per step; or import it again and "
            "choose the steps by hand: --steps-from optimizer, or a regular expression for the names that begin them."
        )
        warnings.append(Warn("trace_without_steps", text))
    elif not steps.markers:
        which = "The one step of this trace was" if len(steps) == 1 else f"The {len(steps):,} steps of this trace were"
        sure = f"{format_percent(steps.confidence_frac)} sure; import it again with --steps-from to choose them by hand"
        found = f"{which} found by {steps.how}, not by step markers ({sure})."
        warnings.append(Warn("steps_inferred", found if steps.own is None else f"{which} chosen by {steps.how}."))
    if steps.own and len(steps) >= _MANY_PER_STEP * steps.own:
        text = (
            f"The trace itself marks {format_number_of(steps.own, 'step')}, each of which holds about "
            f"{len(steps) / steps.own:,.0f} of those chosen by --steps-from: figures are per such part. For figures per "
            "step choose a name that begins each step once, or import it without --steps-from."
        )
        warnings.append(Warn("steps_within_steps", text))
    if steps.cut_off:
        first, more = steps.cut_off[0], len(steps.cut_off) > 1
        which = (
            f"Steps {first} to {steps.cut_off[-1]}, the last ones, are" if more else f"Step {first}, the last one, is"
        )
        text = (
            f"{which} left out of every average: the recording ended before their work on the device did (a last step "
            f"counts only if it launched at least {format_percent(CUT_OFF_SHARE)} of the device events of the one before)."
        )
        warnings.append(Warn("step_cut_off", text))
    return warnings


def _take_given(given: StepBounds, base_ns: int) -> Steps:
    starts = np.array(given.starts_unix_ns, np.int64) - base_ns
    ends = np.array(given.ends_unix_ns, np.int64) - base_ns
    return Steps(
        np.array(given.numbers, np.int64), starts, ends, starts, ends, "the run", _MARKERS.confidence_frac, True
    )


def _from_markers(trace: Trace) -> Steps | None:
    rows = np.flatnonzero(trace.kinds.kind == Kind.STEP)
    if not len(rows):
        return None
    rows = rows[np.argsort(trace.start_ns[rows], kind="stable")]
    starts, ends = trace.start_ns[rows], trace.end_ns[rows]
    # Several threads may carry markers; the first one to carry them is the one that counts.
    keep = np.ones(len(rows), bool)
    keep[1:] = starts[1:] >= np.maximum.accumulate(ends)[:-1]
    rows, starts, ends = rows[keep], starts[keep], ends[keep]
    thread = int(trace.lanes.track[rows[0]])
    numbers = np.array([read_step(trace.names[code]) for code in trace.columns.name[rows].tolist()], np.int64)
    return _make(numbers, starts, ends, _MARKERS, thread)


def _from_optimizer(trace: Trace) -> Steps | None:
    rows = np.flatnonzero(trace.is_host_work & are_named(trace, OPTIMIZER_STEP))
    if len(rows) < 2:
        return None
    ends = np.sort(trace.end_ns[rows])
    ends = ends[np.append(_find_other_work(trace, ends), True)]
    if len(ends) < 2:
        return None
    first = int(trace.start_ns[trace.is_host].min())
    starts = np.concatenate([[first], ends[:-1]])
    thread = int(trace.lanes.track[rows[0]])
    return _make(np.arange(1, len(ends) + 1), starts, ends, _OPTIMIZER_STEPS, thread)


def _find_other_work(trace: Trace, ends: Ints) -> Mask:
    """Say after which of these ends of optimizers another step begins: several may step at the end of one.

    What every step does once or more tells: fetching a batch, or else the backward. Only without either it is the length
    of the gap, as the first steps of a trace may be much longer, or shorter, than the others.
    """
    fetches, backwards = (
        np.diff(np.searchsorted(np.sort(trace.start_ns[are_named(trace, pattern)]), ends)) > 0
        for pattern in (LOADER, BACKWARD)
    )
    if _MANY_PER_STEP * fetches.sum() >= backwards.sum() and fetches.any():
        return fetches
    gaps = np.diff(ends)
    return backwards if backwards.any() else gaps > max(int(np.median(gaps)) // 2, 1)


def _from_loader(trace: Trace) -> Steps | None:
    """Take each batch of a loader where nothing is updated: from its fetch to the next one.

    What a loop fetches last, to find that there is no more, is no batch: it holds no operator, and what follows is not what
    follows other batches. A batch that has come before it was asked for holds none, either.
    """
    rows = np.flatnonzero(trace.is_host & are_named(trace, LOADER))
    if len(rows) < 2 or (trace.is_host_work & are_named(trace, OPTIMIZER_STEP)).any():
        return None
    track = int(np.bincount(trace.lanes.track[rows]).argmax())
    rows = _take_apart(trace, rows[trace.lanes.track[rows] == track])
    starts, ends = trace.start_ns[rows], trace.end_ns[rows]
    until = np.append(starts[1:], int(trace.end_ns[trace.is_host].max()))
    work = np.flatnonzero(trace.is_operator & (trace.lanes.track == track))
    work = work[np.argsort(trace.start_ns[work], kind="stable")]
    first, behind, end = (np.searchsorted(trace.start_ns[work], times) for times in (starts, ends, until))
    computes, makes = end > behind, behind > first
    follows = np.where(computes, trace.columns.name[np.append(work, 0)[behind]], -1)
    sure = computes & makes
    sure = sure if sure.any() else computes & (np.arange(len(rows)) < len(rows) - 1)
    is_batch = computes & (sure | np.isin(follows, follows[sure]))
    if is_batch.sum() < 2:
        return None
    told = _Told("the batches of a loader", LOADER_CONFIDENCE)
    return _make(np.arange(1, is_batch.sum() + 1), starts[is_batch], until[is_batch], told, track)


def _take_apart(trace: Trace, rows: Ints) -> Ints:
    """Return slices of one track in time order, without those that lie in an earlier one."""
    rows = rows[np.argsort(trace.start_ns[rows], kind="stable")]
    found: Ints = rows[np.append(True, trace.start_ns[rows][1:] >= np.maximum.accumulate(trace.end_ns[rows])[:-1])]
    return found


def _from_annotation(trace: Trace) -> Steps | None:
    """Take the annotation that repeats, on one thread, and covers most of the time; its name without digits counts."""
    rows = np.flatnonzero((trace.kinds.kind == Kind.ANNOTATION) & ~are_named(trace, LOADER))
    if len(rows) < _LEAST_REPEATS:
        return None
    stems: dict[str, int] = {}
    stem_of_name = np.array([stems.setdefault(_COUNTER.sub("#", name), len(stems)) for name in trace.names], np.int64)
    keys = trace.lanes.track[rows] * len(stems) + stem_of_name[trace.columns.name[rows]]
    extent = int(trace.end_ns[trace.is_host].max() - trace.start_ns[trace.is_host].min())
    best: tuple[int, Ints] | None = None
    for key in np.unique(keys):
        group = rows[keys == key]
        group = group[np.argsort(trace.start_ns[group], kind="stable")]
        apart = (trace.start_ns[group][1:] >= trace.end_ns[group][:-1]).all()
        covered = int(trace.columns.duration_ns[group].sum())
        if len(group) >= _LEAST_REPEATS and apart and covered > max(_COVERED_SHARE * extent, best[0] if best else 0):
            best = (covered, group)
    if best is None:
        return None
    group = best[1]
    name = trace.names[int(trace.columns.name[group[0]])]
    told = _Told(f"the annotation {name[:80]!r}, which repeats", ANNOTATION_CONFIDENCE)
    numbers = np.arange(1, len(group) + 1)
    thread = int(trace.lanes.track[group[0]])
    return _make(numbers, trace.start_ns[group], trace.end_ns[group], told, thread)


def _from_pattern(trace: Trace) -> Steps | None:
    pattern = find_pattern(trace)
    if pattern is None:
        return None
    confidence_frac = round(PATTERN_CONFIDENCE * pattern.equal_frac, 2)
    told = _Told(f"launches that repeat, each time from {pattern.first_name[:80]!r} on", confidence_frac)
    return _between(trace, pattern.starts_ns, told, -1)


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
    wanted = np.array([bool(pattern.search(name)) for name in trace.names], bool)
    rows = np.flatnonzero(trace.is_host & wanted[trace.columns.name])
    if not len(rows):
        raise TraceError(f"--steps-from {chosen[:80]!r} fits the name of no slice on the host")
    rows = _take_apart(trace, rows[trace.lanes.track[rows] == np.bincount(trace.lanes.track[rows]).argmax()])
    told, thread = _Told(f"hand (names that fit {chosen[:80]!r})", 1.0), int(trace.lanes.track[rows[0]])
    starts, ends = trace.start_ns[rows], trace.end_ns[rows]
    begins = are_named(trace, LOADER)[rows].all()
    if not begins and (ends - starts).sum() >= _COVERED_SHARE * (ends[-1] - starts[0]):
        return _make(np.arange(1, len(rows) + 1), starts, ends, told, thread)
    return _between(trace, starts, told, thread)


def _between(trace: Trace, starts: Ints, told: _Told, thread: int) -> Steps:
    """Return the steps from each start to the next; the last one ends with the work of the trace."""
    work = trace.is_host if trace.is_host.any() else trace.is_device_work
    ends = np.append(starts[1:], max(int(trace.end_ns[work].max()), int(starts[-1]) + 1))
    return _make(np.arange(1, len(starts) + 1), starts, ends, told, thread)


def _whole(trace: Trace) -> Steps:
    work = trace.is_host_work | trace.is_device_work | (trace.kinds.kind == Kind.RUNTIME)
    rows = np.flatnonzero(work if work.any() else np.ones(len(trace.columns), bool))
    if not len(rows):
        empty = np.empty(0, np.int64)
        return _make(empty, empty, empty, _WHOLE)
    start, end = np.array([trace.start_ns[rows].min()]), np.array([trace.end_ns[rows].max()])
    return _make(np.array([1]), start, end, _WHOLE)


def _make(number: Ints, start: Ints, end: Ints, told: _Told, thread: int = -1) -> Steps:
    return Steps(
        number.astype(np.int64), start, end, start, end, told.by, told.confidence_frac, told is _MARKERS, thread
    )


def _add_device_work(trace: Trace, steps: Steps) -> Steps:
    """Let each step end with the last device work launched from inside it, and drop last ones that were cut off."""
    last = np.full(len(steps), np.iinfo(np.int64).min)
    launched = np.zeros(len(steps), np.int64)
    for device in trace.find(trace.is_device_work):
        launch = trace.links.launch[device]
        row = np.where(launch >= 0, steps.locate(trace.start_ns[launch]), -1)
        inside = row >= 0
        np.maximum.at(last, row[inside], trace.end_ns[device[inside]])
        launched += np.bincount(row[inside], minlength=len(steps))
    ends = np.maximum.accumulate(np.maximum(steps.host_end_ns, last))
    previous = np.concatenate([steps.host_start_ns[:1], ends[:-1]])
    starts = np.maximum(previous, steps.host_start_ns)
    return _drop_cut_off(replace(steps, start_ns=starts, end_ns=ends), launched)


def _drop_cut_off(steps: Steps, launched: Ints) -> Steps:
    """Drop the steps behind the last one that launched device work, and that one where it launched too little.

    Without device work all steps are kept: nothing tells then whether one is whole.
    """
    busy = np.flatnonzero(launched)
    if not len(busy):
        return steps
    end = int(busy[-1]) + 1
    if end > 1 and launched[end - 1] < CUT_OFF_SHARE * launched[end - 2]:
        end -= 1
    fields = ("number", "host_start_ns", "host_end_ns", "start_ns", "end_ns")
    kept = {name: getattr(steps, name)[:end] for name in fields}
    return replace(steps, **kept, cut_off=tuple(steps.number[end:].tolist()))
