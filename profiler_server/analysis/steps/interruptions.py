"""Named interruptions of the training thread, and the reasons for detailed windows, as the collector recorded both."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Intervals, Ints, Mask, unite
from collector.format.run import RankRun
from collector.format.schema.manifest import RankManifest, Window
from collector.format.schema.wording import CALL_RANGE, REQUEST_RANGE
from collector.format.steps import has_training, read_integers
from profiler_server.analysis.device.slices import count_parents
from profiler_server.analysis.tables import choose, find_rows, is_text
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.limits.steps import WORTH_FRAC
from profiler_server.facts.steps import NOTHING, CompileEvents, Held, Interruptions, Kind

_SAVES = re.compile(r"check.?point|sav(e|ing)", re.IGNORECASE)
_EVALUATES = re.compile(r"valid|eval", re.IGNORECASE)
_TOGETHER: tuple[tuple[Kind, ...], ...] = (("checkpoint",), ("compile", "recompile"))
_MOST_NAMES = 200
_MOST_TEXT = 200


def read_interruptions(rank: RankRun) -> Interruptions:
    """Read the interruptions of the training thread. A missing or damaged table adds none."""
    pieces = [_read_ranges(rank), _read_compiles(rank), _read_validation(rank), read_between(rank)]
    held = tuple(entry for piece in pieces for entry in piece.held)
    shifts = np.cumsum([0, *(len(piece.held) for piece in pieces)])
    which = np.concatenate([piece.which + shift for piece, shift in zip(pieces, shifts, strict=False)])
    columns = [
        np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("start_ns", "duration_ns", "depth")
    ]
    order = np.argsort(columns[0], kind="stable")
    return Interruptions(held, which[order], *(column[order] for column in columns))


@derived()
def read_saves(rank: RankRun) -> Intervals:
    """Read when the training thread saved a checkpoint. A missing or damaged table adds none."""
    found = _read_ranges(rank).of_kind("checkpoint")
    return unite(found.start_ns, found.start_ns + found.duration_ns)


class StepCauses:
    """The interruptions of the training steps, compared with their usual time in a step. They explain why a step
    took long."""

    def __init__(self, found: Interruptions, starts: Ints, ends: Ints, kept: Mask) -> None:
        self._found = found
        self._starts, self._kept = starts, kept
        at = np.searchsorted(starts, found.start_ns, side="right") - 1
        inside = (at >= 0) & (found.start_ns < ends[at]) if len(starts) else np.zeros(len(at), np.bool_)
        self._at = np.where(inside, at, -1)
        self._usual: dict[int, float] = {}

    def find(self, step: int, excess_ns: float) -> tuple[Held, int] | None:
        """Return the interruption that took at least half of the excess of the step with the index `step`, and its time
        in ns. Of nested ones, the innermost counts.

        If no single interruption took that much, several of one kind may have taken it together. Otherwise None.
        """
        rows = np.flatnonzero(self._at == step)
        best: tuple[int, int, int] | None = None
        for place in np.unique(self._found.which[rows]).tolist():
            own = rows[self._found.which[rows] == place]
            took = int(self._found.duration_ns[own].sum())
            if took - self._find_usual(place) >= excess_ns / 2:
                best = max(best or (-1, 0, 0), (int(self._found.depth[own].min()), took, place))
        if best is None:
            return self._find_several(rows, excess_ns)
        return self._found.held[best[2]], best[1]

    def _find_several(self, rows: Ints, excess_ns: float) -> tuple[Held, int] | None:
        found = self._found
        for kinds in _TOGETHER:
            own = rows[[found.held[place].kind in kinds for place in found.which[rows]]]
            if len(own) < 2:
                continue
            outer = own[found.depth[own] == found.depth[own].min()]
            took = int(found.duration_ns[outer].sum())
            if took >= excess_ns / 2:
                names = list(dict.fromkeys(found.held[place].name for place in found.which[outer]))
                several = ", ".join(names[:3]) if kinds == ("checkpoint",) else f"{len(outer)} functions"
                return Held(kinds[0], several), took
        return None

    def _find_usual(self, place: int) -> float:
        """Return the median time per step of interruption `place`; 0 if fewer than half of the steps have it."""
        if place not in self._usual:
            rows = (self._found.which == place) & (self._at >= 0)
            spent = np.bincount(self._at[rows], self._found.duration_ns[rows], len(self._starts))
            self._usual[place] = float(np.median(spent[self._kept])) if self._kept.any() else 0.0
        return self._usual[place]


def _read_ranges(rank: RankRun) -> Interruptions:
    rows = _read(rank, "ranges", ("id", "parent", "name", "start_ns", "duration_ns", "training"))
    # Requests and calls of a model are the work of an inference, and no interruption of it.
    is_work = is_text(rows, "name", REQUEST_RANGE, CALL_RANGE)
    rows = rows.filter(pc.and_not(pc.fill_null(rows["training"], True), is_work))
    names = rows["name"].combine_chunks().cast(pa.string()).dictionary_encode()
    texts = names.dictionary.to_pylist()[:_MOST_NAMES]
    which = np.asarray(names.indices.to_numpy(zero_copy_only=False), np.int64)
    depth = count_parents(read_integers(rows, "id"), pc.fill_null(rows["parent"], -1).to_numpy()).astype(np.int64)
    found = Interruptions(
        tuple(Held(_classify(text), text[:_MOST_TEXT]) for text in texts),
        which,
        read_integers(rows, "start_ns"),
        read_integers(rows, "duration_ns"),
        depth,
    )
    return found._take(which < len(texts))


def _classify(name: str) -> Kind:
    if _SAVES.search(name):
        return "checkpoint"
    return "validation" if _EVALUATES.search(name) else "range"


def _read_compiles(rank: RankRun) -> Interruptions:
    rows = choose(_read(rank, "compiles", ("start_ns", *_COMPILED)), "kind", "compile", "recompile")
    held: dict[Held, int] = {}
    entries = zip(*(rows[name].to_pylist() for name in ("kind", "name", "reason")), strict=True)
    named = (Held(kind, str(name)[:_MOST_TEXT], _take_line(reason)) for kind, name, reason in entries)
    which = np.array([held.setdefault(entry, len(held)) for entry in named], np.int64)
    times = read_integers(rows, "start_ns"), read_integers(rows, "duration_ns")
    return Interruptions(tuple(held), which, *times, np.full(len(which), 1000, np.int64))


def _read_validation(rank: RankRun) -> Interruptions:
    """Read the validation passes: evaluation batches between two training steps, from the first to the last."""
    rows = _read(rank, "steps", ("kind", "start_ns", "duration_ns"))
    evaluates, trains = (is_text(rows, "kind", kind).to_numpy() for kind in ("eval", "train"))
    starts = read_integers(rows, "start_ns")
    ends = starts + read_integers(rows, "duration_ns")
    batches = np.flatnonzero(evaluates)
    if not len(batches) or not has_training(rows):
        return NOTHING
    steps_before = np.cumsum(trains)[batches]
    first = batches[np.flatnonzero(np.diff(steps_before, prepend=-1))]
    last = batches[np.append(np.flatnonzero(np.diff(steps_before)), len(batches) - 1)]
    zeros = np.zeros(len(first), np.int64)
    return Interruptions((Held("validation", ""),), zeros, starts[first], ends[last] - starts[first], zeros)


def read_between(rank: RankRun) -> Interruptions:
    """Read the time before the first batch of each epoch: the end of workers, and other work of the script.

    If it sums to less than a hundredth of the recorded time, nothing is returned.
    """
    rows = _read(rank, "steps", ("kind", "batch", "start_ns", "duration_ns"))
    begins = read_integers(rows, "batch", absent=-1) == 0
    chosen = np.flatnonzero(is_text(rows, "kind", "rest").to_numpy() & np.append(begins[1:], False)[: rows.num_rows])
    starts, lengths = read_integers(rows, "start_ns"), read_integers(rows, "duration_ns")
    if not len(chosen) or lengths[chosen].sum() < WORTH_FRAC * lengths.sum():
        return NOTHING
    zeros = np.zeros(len(chosen), np.int64)
    return Interruptions((Held("between", ""),), zeros, starts[chosen], lengths[chosen], zeros)


def _read(rank: RankRun, table: str, columns: tuple[str, ...]) -> pa.Table:
    return find_rows(rank, table, columns).unify_dictionaries().combine_chunks()


_COMPILED = ("kind", "duration_ns", "name", "reason")


def summarize_compiles(rank: RankRun) -> dict[str, CompileEvents]:
    """Sum compilations by kind: compile, recompile, graph_break. Empty if the table cannot be read."""
    rows = find_rows(rank, "compiles", _COMPILED)
    kinds = rows["kind"].cast(pa.string()).to_pylist()
    events = list(zip(kinds, *(rows[name].to_pylist() for name in _COMPILED[1:]), strict=True))
    return {kind: _sum_events([event[1:] for event in events if event[0] == kind]) for kind in set(kinds)}


def _sum_events(events: list[tuple[int, str, str | None]]) -> CompileEvents:
    names = Counter(name for _, name, _ in events)
    most = names.most_common(1)[0][0]
    reasons = Counter(_take_line(reason) for _, name, reason in events if name == most)
    total = sum(duration for duration, _, _ in events)
    return CompileEvents(len(events), total, len(names), most, reasons.most_common(1)[0][0])


def _take_line(reason: str | None) -> str:
    lines = (reason or "").strip().splitlines()
    return lines[0].strip()[:_MOST_TEXT] if lines else ""


BY_ITSELF = ("outlier", "starvation", "drift", "lines")
_ASKED = {"option": "chosen by the option window", "control": "asked for while the run recorded"}
_BY_DEFAULT = "the default of the option window"
DEFAULT_STEPS = (10, 12)
"""The default window of a script that sets none. Ranks do not record who set it, so it is called default."""


@dataclass(frozen=True)
class WindowReason:
    """A detailed window and why it was opened, such as "opened by itself: step 412 took 6.1× the median".

    `on_demand` is true if libkineto recorded it on a separate thread.
    """

    window: Window
    text: str
    on_demand: bool


def explain_windows(manifest: RankManifest) -> tuple[WindowReason, ...]:
    """Return the reason for the opening of each detailed window of a rank, in run order."""
    entries = _read_orders(manifest)
    return tuple(_explain(window, entries) for window in manifest.windows)


def find_reasons(manifest: RankManifest) -> tuple[tuple[Window, str], ...]:
    """Return the windows that opened by themselves, each with the reason as half a sentence, such as "step 412 took
    6.1× the median".

    The text comes from the last request of the same kind before the window; "" without one.
    """
    entries = _read_orders(manifest)
    return tuple(
        (window, _take_text(_find_order(window, entries))) for window in manifest.windows if window.trigger in BY_ITSELF
    )


def _explain(window: Window, entries: list[dict[str, object]]) -> WindowReason:
    if window.trigger not in BY_ITSELF:
        return WindowReason(window, _explain_asked(window), False)
    order = _find_order(window, entries)
    text = _take_text(order)
    return WindowReason(
        window, f"opened by itself: {text}" if text else "opened by itself", order.get("on_demand") is True
    )


def _explain_asked(window: Window) -> str:
    first, last = DEFAULT_STEPS
    if window.trigger == "option" and window.first_step == first and window.last_step <= last:
        return _BY_DEFAULT
    return _ASKED.get(window.trigger, window.trigger[:_MOST_TEXT])


def _read_orders(manifest: RankManifest) -> list[dict[str, object]]:
    noted = manifest.facts.get("triggers", ())
    return [entry for entry in noted if isinstance(entry, dict)] if isinstance(noted, (list, tuple)) else []


def _find_order(window: Window, entries: list[dict[str, object]]) -> dict[str, object]:
    of_kind = (entry for entry in reversed(entries) if entry.get("trigger") == window.trigger)
    return next((entry for entry in of_kind if isinstance(at := entry.get("step"), int) and at < window.first_step), {})


def _take_text(order: dict[str, object]) -> str:
    return str(order.get("text", ""))[:_MOST_TEXT]
