"""The stacks of a rank: by phase of the training thread, and by stage of each DataLoader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Ints, Mask, unite
from collector.format.phases import PHASE_NAMES
from collector.format.run import RankRun
from collector.format.schema.errors import read_or
from collector.format.steps import SELECTED_COLUMNS, count_as_steps, select_steps, train_steps
from collector.format.words import STACK_STAGES
from profiler_server.analysis.stacks.frames import Frame, StackParser
from profiler_server.analysis.stacks.line_work import Third, read_line_course, read_line_work
from profiler_server.analysis.stacks.lines import Texts, find_lines
from profiler_server.analysis.stacks.naming import (
    Function,
    cut_worker,
    find_entry,
    find_loop,
    knows_loop,
    name_phase,
    name_stage,
)
from profiler_server.facts.case import THREADS, WORKERS, Lines
from profiler_server.facts.steps import Part

_COLUMNS = ("replica", "loader", "kind", "phase", "stage", "start_ns", "duration_ns", "samples", "entry", "stack")
K = TypeVar("K")
Stack = tuple[Frame, ...]
OfStage = Mapping[tuple[Stack, int], int]
"""Stacks, with the number of frames outside of the stage -> samples."""


@dataclass(frozen=True)
class Stacks:
    """The samples of the steady steps: the number of samples by stack, for each phase and each stage. `stages` are
    keyed by DataLoader number and stage; the number is None if threads of the training process make the batches. `loop`
    are the functions of the training loop. `beside` are, by phase, the samples of other threads for which the training
    thread waited.
    """

    phases: Mapping[str, Mapping[Stack, int]]
    stages: Mapping[tuple[int | None, str], OfStage]
    loop: frozenset[Function] = field(default_factory=frozenset)
    beside: Mapping[str, Mapping[Stack, int]] = field(default_factory=dict)

    def phase(self, *names: str) -> Part:
        """Return the samples of one or several phases, and the functions in which they ran, under the name of the first
        phase.
        """
        weights: Counter[Stack] = Counter()
        for name in names:
            weights.update(self.phases.get(name, {}))
        return Part(names[0], weights.total(), name_phase(weights, self.loop, knows_loop(self.phases)))

    def stage(self, loader: int | None, *names: str) -> Part:
        """Return the samples of one or several stages, and the functions in which they ran. `loader` is a DataLoader's
        number, None for the training thread.
        """
        weights: Counter[tuple[Stack, int]] = Counter()
        for name in names:
            for key, samples in self.find_stage(loader, name).items():
                weights[_find_innermost(*key) if name in _THREADS else key] += samples
        return Part(names[0], weights.total(), name_stage(weights))

    def count_through(self, phase: str, name: str, file: str) -> tuple[int, int]:
        """Return two counts of samples of a phase: those that ran in or below the function `name`, and all of them.

        The function's file must end in `file`.
        """
        weights = self.phases.get(phase, {})
        through = (
            samples
            for stack, samples in weights.items()
            if any(frame.name == name and frame.file.endswith(file) for frame in stack)
        )
        return sum(through), sum(weights.values())

    def list_below(self, phase: str) -> Mapping[Stack, int]:
        """Return the stacks of a phase, each cut to begin with the function that the loop calls; with the loop's frame
        if it calls nothing.
        """
        below: Counter[Stack] = Counter()
        for stack, samples in self.phases.get(phase, {}).items():
            below[stack[min(find_entry(stack, self.loop), len(stack) - 1) :]] += samples
        return below

    def list_inside(self, loader: int | None, stage: str) -> Mapping[Stack, int]:
        """Return the stacks of a stage, each cut to begin with the first function of the stage. `loader` is as in
        `stage`.
        """
        inside: Counter[Stack] = Counter()
        for (stack, entry), samples in self.find_stage(loader, stage).items():
            inside[stack[entry:]] += samples
        return inside

    def find_stage(self, loader: int | None, name: str) -> OfStage:
        """Return the stacks of a stage. If the loader has no workers, they come from the training thread."""
        return self.stages.get((loader, name)) or self.stages.get((None, name), {})


def read_lines(
    rank: RankRun, stacks: Stacks, shares: Mapping[str, float], texts: Texts, thirds: Sequence[Third] = ()
) -> Lines:
    """Return the mean step by lines of the user's code. `shares` maps a phase to its share of the mean step."""
    rows = _read_rows(rank, (*_COLUMNS, "asleep", "running"))
    is_trainer = pc.and_(pc.equal(rows["replica"], -1), pc.and_(pc.is_valid(rows["phase"]), pc.is_valid(rows["stack"])))
    steady = rows.filter(pc.and_(is_trainer, _mark_steady(rank, rows)))
    dense = rows.filter(pa.array(mark_dense(rank, rows)))
    phases, shares = _place_threads(stacks, *_place_workers(stacks, shares))
    return find_lines(
        phases,
        shares,
        stacks.loop,
        texts,
        lambda find_key: read_or({}, read_line_work, rank, dense, find_key),
        lambda find_key: read_line_course(steady, thirds, find_key),
    )


def _find_innermost(stack: Stack, entry: int) -> tuple[Stack, int]:
    """Return a stack of another thread with the number of frames outside of the user's innermost function: what calls it
    is the same all the time."""
    own = (at for at in range(len(stack) - 1, entry, -1) if not (stack[at].package or stack[at].is_comprehension))
    return stack, next(own, entry)


_THREADS = ("threads", "beside")
_WAITING = frozenset(("poll", "_poll", "select", "wait", "get", "acquire"))
_MAKING = ("read", "transform", "collate", "fetch")


def _place_workers(
    stacks: Stacks, shares: Mapping[str, float]
) -> tuple[dict[str, Mapping[Stack, int]], Mapping[str, float]]:
    """Divide the wait for workers according to the work of the workers. The rest of the wait stays with the training
    thread.
    """
    wait = stacks.phases.get("data_wait", {})
    waiting = {stack: samples for stack, samples in wait.items() if _waits_for_worker(stack)}
    work: Counter[Stack] = Counter()
    for loader, stage in stacks.stages:
        if loader is not None and stage in _MAKING:
            work.update(stacks.list_inside(loader, stage))
    if not waiting or not work:
        return {**stacks.phases}, shares
    frac = sum(waiting.values()) / sum(wait.values())
    rest = {stack: samples for stack, samples in wait.items() if stack not in waiting}
    phases = {name: weights for name, weights in stacks.phases.items() if name != "data_wait"}
    kept = {name: share for name, share in shares.items() if name != "data_wait"}
    whole = shares.get("data_wait", 0.0)
    if rest:
        phases["data_wait"], kept["data_wait"] = rest, whole * (1.0 - frac)
    return {**phases, WORKERS: work}, {**kept, WORKERS: whole * frac}


def _place_threads(
    stacks: Stacks, phases: Mapping[str, Mapping[Stack, int]], shares: Mapping[str, float]
) -> tuple[Mapping[str, Mapping[Stack, int]], Mapping[str, float]]:
    """Divide the wait for other threads of the process according to their work. A sample of another thread stands for a
    sample of the training thread, which waited then.
    """
    found, kept, work = dict(phases), dict(shares), Counter[Stack]()
    for name, beside in stacks.beside.items():
        weights = phases.get(name, {})
        found[name], taken = _hand_over(weights, lambda stack: stack, sum(beside.values()))
        if not taken:
            continue
        moved_frac = taken / sum(weights.values())
        kept[THREADS] = kept.get(THREADS, 0.0) + kept.get(name, 0.0) * moved_frac
        kept[name] = kept.get(name, 0.0) * (1.0 - moved_frac)
        work.update(beside)
    if not work:
        return phases, shares
    return {name: weights for name, weights in {**found, THREADS: work}.items() if weights}, kept


def _hand_over(weights: Mapping[K, int], find_stack: Callable[[K], Stack], most: int) -> tuple[dict[K, int], int]:
    """Take up to `most` samples from the stacks that wait for a thread, from each the same share. Return the samples that
    are left, and the number of those taken."""
    waiting = {key for key in weights if _waits(stack := find_stack(key)) and not _waits_for_worker(stack)}
    frac = min(most / sum(weights[key] for key in waiting), 1.0) if waiting else 0.0
    left = {key: round(samples * (1.0 - frac * (key in waiting))) for key, samples in weights.items()}
    return {key: samples for key, samples in left.items() if samples}, sum(weights.values()) - sum(left.values())


def _waits(stack: Stack) -> bool:
    return stack[-1].name.rpartition(".")[2] in _WAITING


def _waits_for_worker(stack: Stack) -> bool:
    return _waits(stack) and any(frame.package == "torch" and frame.name.endswith("_try_get_data") for frame in stack)


def read_stacks(rank: RankRun) -> Stacks | None:
    """Read the stacks, or return None without any. Raises TableBrokenError or NewerSchemaError."""
    rows = _read_steady(rank)
    return _sum_rows(_group(rows)) if rows is not None else None


def list_samples(rank: RankRun) -> list[tuple[StackRow, int]]:
    """Return the samples of the steady steps as `read_stacks` counts them: each distinct one, and how often it was seen.

    Raises TableBrokenError or NewerSchemaError.
    """
    rows = _read_steady(rank)
    return _group(rows) if rows is not None else []


_UPDATE = r"(?m)^\w+(\.step \(.*/torch/optim/\w+\.py:\d+\))$"


def _read_rows(rank: RankRun, columns: Sequence[str]) -> pa.Table:
    """Read the stacks. The code of an update has the name of the class that defines it, such as Adam for AdamW: if all
    optimizers of the run have one class, it gets the name of this class."""
    rows, noted = rank.table("stacks", columns), rank.manifest.facts.get("optimizers")
    entries = noted if isinstance(noted, list) else ()
    names = {str(entry.get("name")) for entry in entries if isinstance(entry, Mapping)}
    if len(names) != 1 or not (name := names.pop()).isidentifier():
        return rows
    stacks = rows["stack"].cast(pa.string()).combine_chunks().dictionary_encode()
    renamed = pc.replace_substring_regex(stacks.dictionary, _UPDATE, rf"{name}\1")
    return rows.set_column(rows.schema.get_field_index("stack"), "stack", renamed.take(stacks.indices))


def _read_steady(rank: RankRun) -> pa.Table | None:
    if rank.status("stacks").state != "there":
        return None
    rows = _read_rows(rank, _COLUMNS)
    rows = rows.filter(pc.is_valid(rows["stack"]))
    return rows.filter(_mark_steady(rank, rows)) if rows.num_rows else None


def _mark_steady(rank: RankRun, rows: pa.Table) -> pa.Array:
    steps = count_as_steps(rank.table("steps", SELECTED_COLUMNS))
    selection = select_steps(steps.steps)
    starts = train_steps(steps.steps)["start_ns"].to_numpy()
    begin = int(starts[selection.kept][0]) if selection.kept.any() else 0
    stood = selection.stood & ~selection.kept
    seen = rows["start_ns"].to_numpy()
    within = unite(starts[stood], (starts + selection.duration_ns)[stood]).contains(seen)
    late = pa.array((seen >= begin) & ~within & ~mark_dense(rank, rows))
    kind = "eval" if steps.infers else "train"
    return pc.and_(late, pc.equal(pc.fill_null(rows["kind"].cast(pa.string()), kind), kind))


def mark_dense(rank: RankRun, rows: pa.Table) -> Mask:
    """Mark the samples that were taken in quick succession in a detailed window. Each of them has a row of its own."""
    seen, lengths = rows["start_ns"].to_numpy(), rows["duration_ns"].to_numpy()
    inside = np.zeros(len(seen), np.bool_)
    for window in rank.manifest.windows:
        inside |= (window.start_ns <= seen) & (seen < window.end_ns)
    return np.asarray(inside & (lengths == 0), np.bool_)


def _sum_rows(rows: Sequence[tuple[StackRow, int]]) -> Stacks:
    phases: dict[str, Counter[Stack]] = {}
    stages: dict[tuple[int | None, str], Counter[tuple[Stack, int]]] = {}
    beside: dict[str, Counter[Stack]] = {}
    parser = StackParser()
    for row, samples in rows:
        stack = parser.parse(row.stack)
        if row.is_trainer and row.phase is not None:
            phases.setdefault(row.phase, Counter())[stack] += samples
        if row.stage is not None:
            loader = None if row.is_trainer else row.loader
            cut = cut_worker(stack, row.entry or 0)
            stages.setdefault((loader, row.stage), Counter())[cut] += samples
            if row.stage == "threads" and row.phase is not None:
                beside.setdefault(row.phase, Counter())[cut[0]] += samples
    ordered = {name: phases[name] for name in PHASE_NAMES if name in phases}
    places = {name: place for place, name in enumerate(STACK_STAGES)}
    keys = sorted((key for key in stages if key[1] in places), key=lambda key: (key[0] or 0, places[key[1]]))
    threads = stages.get((None, "threads"), Counter())
    for key in keys:
        if key[0] is None and key[1] not in _THREADS:  # the training thread waits in it for threads that do its work
            left, taken = _hand_over(stages[key], lambda entry: entry[0], threads.total())
            work = {entry: round(samples * taken / threads.total()) for entry, samples in threads.items() if taken}
            stages[key] = Counter(left) + Counter(work)
    return Stacks(ordered, {key: stages[key] for key in keys}, find_loop(ordered), beside)


class StackRow(NamedTuple):
    """What is known of a sample. `phase` is known in the training process, `stage` of whoever makes a batch; `loader` is
    the DataLoader of a worker. `entry` is the number of frames outside of the stage; `stack` is a text with a line for
    each frame, outermost first.
    """

    is_trainer: bool
    loader: int | None
    phase: str | None
    stage: str | None
    entry: int | None
    stack: str


def _group(rows: pa.Table) -> list[tuple[StackRow, int]]:
    """Sum the samples of equal rows. For speed, values are replaced by numbers, because there are few distinct values
    and many rows.
    """
    rows = rows.unify_dictionaries().combine_chunks()
    codes: list[Ints] = [rows["replica"].to_numpy() == -1]
    values: list[list[Any]] = [[False, True]]
    for name in StackRow._fields[1:]:
        column = pa.chunked_array(rows[name]).combine_chunks()
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        values.append([*encoded.dictionary.to_pylist(), None])
        codes.append(pc.fill_null(encoded.indices, len(values[-1]) - 1).to_numpy(zero_copy_only=False))
    # As one number: equal numbers are found much faster than equal rows.
    numbers = np.ravel_multi_index([code.astype(np.int64) for code in codes], [len(known) for known in values])
    keys, places = np.unique(numbers, return_inverse=True)
    sums = np.bincount(places, rows["samples"].to_numpy(), len(keys)).astype(np.int64)
    columns = np.unravel_index(keys, [len(known) for known in values])
    spelt = [[known[at] for at in column.tolist()] for known, column in zip(values, columns, strict=True)]
    return [(StackRow(*row), count) for *row, count in zip(*spelt, sums.tolist(), strict=True)]
