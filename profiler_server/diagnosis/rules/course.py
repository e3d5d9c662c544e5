"""The course of a run: how it starts, what changes in it, and how much of it is evaluation."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.phases import IN_MODEL, WAITING
from profiler_server.diagnosis.limits import course as limits
from profiler_server.diagnosis.limits.facts import (
    DOMINANT_FRAC,
    MIN_GAIN_FRAC,
    MIN_STEPS,
    NOISY_FRAC,
    QUEUED_FRAC,
    SHIFT_CHANCE,
    SURE_ERRORS,
)
from profiler_server.diagnosis.what_if import drop_extra, sum_recorded_ns
from profiler_server.facts.case import STEPS_PAGE, Abstention, Case, Evidence, Finding, Hotspot, Rule
from profiler_server.facts.loading import Floats
from profiler_server.facts.steps import Ints, Mask, read_column
from profiler_server.format import format_number_of
from profiler_server.words.phrases import FUNCTIONS, describe, write_loader


def _judge_drift(case: Case) -> Finding | Abstention | None:
    """Steps become longer as the run goes on."""
    regular = np.flatnonzero(case.steps.selection.regular)
    if len(regular) < limits.DRIFT_STEPS:
        return None
    parts = np.array_split(regular, limits.DRIFT_PARTS)
    levels = np.array([np.median(case.steps.selection.duration_ns[part]) for part in parts])
    if case.steps.shift is not None:  # one step at which all became longer is no growth
        return None
    drift = float(levels[-1] / levels[0] - 1.0) if levels[0] else 0.0
    rises = int((np.diff(levels) > 0).sum())
    if drift < limits.DRIFT_FRAC or rises < limits.DRIFT_RISES:
        return None
    if case.host.load is None:
        return Abstention(
            "drift", "what else ran on the host while steps grew", "Record with Profiler(resources=True)."
        )
    if case.host.others_frac >= NOISY_FRAC or case.host.got_busier:
        return None
    growth = case.steps.find_growth(parts[0], parts[-1])
    phase = max(growth, key=lambda name: growth[name])
    spot = _find_growing(case, float(levels[-1] - levels[0]))
    named = {} if spot is None else {"name": spot.name, "place": spot.place, "course": spot.course}
    return Finding(
        describe(
            case,
            "drift" if spot is None else "drift.named",
            before_ns=levels[0],
            after_ns=levels[-1],
            drift=drift,
            phase=phase,
            **named,
        ),
        evidence=(STEPS_PAGE,) if spot is None else (STEPS_PAGE, FUNCTIONS),
        severity="info" if spot is None or drift < limits.MUCH_DRIFT_FRAC else "low",
    )


def _find_growing(case: Case, growth_ns: float) -> Hotspot | None:
    """Return the user's line whose growth is most of the growth of the step, `growth_ns`; None if there is none.

    Backward, update and the loader's loop are left out, and so is their part of the growth.
    """
    spots = case.lines.hotspots if case.lines is not None else ()
    grown = [(spot.course.growth_ns, spot.course.error_ns, spot) for spot in spots if spot.course is not None]
    rest_ns = growth_ns - sum(time_ns for time_ns, _, spot in grown if spot.doing)
    least_ns = max(DOMINANT_FRAC * rest_ns, MIN_GAIN_FRAC * case.steps.mean_ns)
    own = [entry for entry in grown if not entry[2].doing and entry[0] >= max(least_ns, SURE_ERRORS * entry[1])]
    return max(own, key=lambda entry: entry[0])[2] if own else None


def _judge_shift(case: Case) -> Finding | None:
    """From a certain step on, all steps take longer."""
    regular = np.flatnonzero(case.steps.selection.regular)
    if len(regular) < limits.SHIFT_STEPS:
        return None
    found = case.steps.shift
    if found is None or found.change_frac < limits.SHIFT_FRAC or found.held_frac < limits.SHIFT_HELD_FRAC:
        return None
    before, after = regular[: found.at], regular[found.at :]
    if found.at < limits.SHIFT_FILLS * _count_ahead(case) or _takes_other_batches(case, before, after):
        return None
    growth = case.steps.find_growth(before, after)
    phase = max(growth, key=lambda name: growth[name])
    since = int(case.steps.selection.step[after[0]])
    return Finding(
        describe(case, _name_shift(case, phase), since=since, found=found, phase=phase, runs=1 / SHIFT_CHANCE),
        severity="info",
    )


def _count_ahead(case: Case) -> int:
    loader = case.loading.loader
    return loader.num_workers * (loader.prefetch_factor or 0) if loader is not None else 0


def _takes_other_batches(case: Case, before: Ints, after: Ints) -> bool:
    """Return whether the usual step has other batches after the change: other samples, forwards or backwards."""
    columns = ("samples", "forwards", "backwards")
    values = (read_column(case.steps.rows, name) for name in columns)
    return any(np.median(counts[before]) != np.median(counts[after]) for counts in values)


def _name_shift(case: Case, phase: str) -> str:
    if case.host.got_busier:
        return "shift.busier"
    return f"shift.{phase}" if phase in WAITING else "shift"


def _judge_jitter(case: Case) -> Finding | None:
    """Steps vary much, and nothing that is recorded explains it (a remark, no advice)."""
    load = case.host.load
    busy = case.host.others_frac >= NOISY_FRAC or (load is not None and (load.queued_frac or 0.0) >= QUEUED_FRAC)
    own_ns = _read_own(case)
    if busy or case.loading.is_input_bound or len(own_ns) < MIN_STEPS:
        return None
    low, middle, high = np.percentile(own_ns, (10, 50, 90))
    if high - low < limits.JITTER_FRAC * middle:
        return None
    return Finding(
        describe(case, "jitter", middle=middle, low=low, high=high),
    )


def _read_own(case: Case) -> Floats:
    """Return the durations in ns of regular steps, minus data wait and garbage collection. Steps with a checkpoint,
    validation or compilation are left out."""
    rows, selection = case.steps.rows, case.steps.selection
    known = read_column(rows, "data_wait_ns") + read_column(rows, "gc_ns")
    held = case.steps.interruptions.of_kind("checkpoint", "validation", "compile", "recompile").start_ns
    starts = read_column(rows, "start_ns")
    ends = starts + selection.duration_ns
    free = np.searchsorted(held, starts) == np.searchsorted(held, ends)
    own_ns: Floats = (selection.duration_ns - known)[selection.regular & free].astype(np.float64)
    return own_ns


_NS_PER_HOUR = 3_600_000_000_000


def _judge_memory_creep(case: Case) -> Finding | Abstention | None:
    """The memory of the training process grows for as long as the run goes on."""
    growth = case.host.load.growth if case.host.load is not None else None
    if growth is None:
        return None
    grown = growth.grown_bytes
    if grown < max(limits.GROWN_FRAC * growth.levels_bytes[0], limits.GROWN_BYTES) or not growth.is_steady:
        return None
    per_hour = grown / growth.elapsed_ns * _NS_PER_HOUR
    return Finding(
        describe(case, "memory_creep", last=growth.levels_bytes[-1], first=growth.levels_bytes[0], per_hour=per_hour),
        evidence=(Evidence("memory", "", "Memory of the processes over the steps"),),
        severity="medium",
    )


def _judge_worker_restart(case: Case) -> Finding | None:
    """The workers are started again for every epoch."""
    loader = case.loading.loader
    if loader is None or not loader.num_workers or (loader.persistent_workers and not loader.remade):
        return None
    selection = case.steps.selection
    restarts = selection.first_of_epoch & selection.kept
    if restarts.sum() < limits.MIN_RESTARTS or restarts.sum() == selection.kept.sum():
        return None
    waits, computed = _measure_restarts(case, restarts, loader.num_workers)
    saved, kept = waits + computed, int(selection.kept.sum())
    per_step, steps = float(saved.sum()) / kept, kept / int(restarts.sum())
    return Finding(
        describe(
            case,
            "worker_restart.remade" if loader.remade else "worker_restart",
            restarts=int(restarts.sum()),
            each_ns=float(saved.mean()),
            steps=steps,
            share=per_step / case.steps.mean_ns,
            call=write_loader(loader, persistent_workers=True),
        ),
        settings={"persistent_workers": True},
        what_if=drop_extra(case, per_step, float(computed.sum()) / kept),
        doubt_frac=0.2,
        least_frac=0.8,
    )


def _measure_restarts(case: Case, restarts: Mask, workers: int) -> tuple[Floats, Floats]:
    """Return the extra time of each restart, in ns: of the first steps of its epoch, beyond the usual wait for data, and
    of the first step, beyond the computing of the steps that follow. Of the latter, only what the restart causes.

    After a restart, each worker is late with its first batch. Even a running worker has to make the first batch of an
    epoch, so the work on one batch is subtracted. A fork makes the first step compute longer, because memory that it
    writes is copied.
    """
    kept = np.flatnonzero(case.steps.selection.kept)
    waits = read_column(case.steps.rows, "data_wait_ns")[kept]
    usual = float(np.median(waits))
    first = np.flatnonzero(restarts[kept])
    ends = np.append(first[1:], len(kept))
    after = np.minimum(first + workers, ends)
    begun = np.maximum(waits[first] - usual - case.loading.batch_ns, 0.0)
    late = [np.maximum(waits[at + 1 : end] - usual, 0.0).sum() for at, end in zip(first, after, strict=True)]
    computed = np.sum([read_column(case.steps.rows, f"{name}_ns")[kept] for name in IN_MODEL], axis=0)
    following = [computed[at + 1 : end][: limits.NEXT_STEPS] for at, end in zip(first, ends, strict=True)]
    usual_ns = [np.median(steps) if len(steps) else np.inf for steps in following]
    longer = limits.LONGER_SAVED_FRAC * np.maximum(computed[first] - usual_ns, 0.0)
    return np.asarray(begun + np.array(late), np.float64), np.asarray(longer, np.float64)


def _judge_slow_start(case: Case) -> Finding | None:
    """The loader took long to start."""
    loader, rows = case.loading.loader, case.steps.rows
    if loader is None or not loader.num_workers or not rows.num_rows:
        return None
    started_ns = int(read_column(rows, "loader_start_ns")[0])
    share = started_ns / float(read_column(rows, "duration_ns").sum())
    if started_ns < limits.WARM_UP_NS or share < limits.WARM_UP_FRAC:
        return None
    return Finding(
        describe(
            case,
            "slow_start.forked" if loader.start_method == "fork" else "slow_start",
            method=loader.start_method or "start method not known",
            started_ns=started_ns,
            share=share,
        ),
        evidence=(Evidence("steps", "step=1", f"The first {case.steps.noun}"),),
    )


def _judge_warm_up(case: Case) -> Finding | None:
    """The first steps took a large part of the run."""
    selection = case.steps.selection
    if not selection.warm_up.any():
        return None
    steps = int(selection.warm_up.sum())
    extra = float(selection.duration_ns[selection.warm_up].sum()) - steps * case.loading.loop.regular_step_ns
    share = extra / float(selection.duration_ns.sum())
    if extra < limits.WARM_UP_NS or share < limits.WARM_UP_FRAC:
        return None
    noun = case.steps.noun
    first = noun if steps == 1 else format_number_of(steps, noun)
    return Finding(
        describe(case, "warm_up", first=first, extra=extra, share=share),
        evidence=(Evidence("steps", "step=1", f"The first {case.steps.noun}"),),
    )


def _find_left(passes: int, every: int) -> float:
    """Return the share of the evaluation that remains if only every second or fifth pass takes place (`every`), or half of
    the samples of a single one."""
    return math.ceil(passes / every) / passes if passes > 1 else 0.5


def _judge_validation_share(case: Case) -> Finding | None:
    """A large part of the run is evaluation."""
    rows = case.steps.other_rows
    evaluation = rows.filter(pc.equal(rows["kind"].cast(pa.string()), "eval"))
    spent = int(read_column(evaluation, "duration_ns").sum())
    trained = int(read_column(case.steps.rows, "duration_ns").sum())
    share = spent / sum_recorded_ns(case) if spent else 0.0
    if share < limits.EVALUATION_FRAC:
        return None
    if not read_column(evaluation, "fetches").any() and evaluation["loader"].null_count == evaluation.num_rows:
        return Finding(describe(case, "validation_share.calls", calls=evaluation.num_rows, spent_ns=spent, share=share))
    passes = len(case.steps.interruptions.of_kind("validation").start_ns)
    every, now_ns = 5 if passes >= 5 else 2, spent + trained
    then_ns = trained + _find_left(passes, every) * spent
    waited = int(read_column(evaluation, "data_wait_ns").sum()) / spent
    return Finding(
        describe(
            case,
            "validation_share.passes" if passes > 1 else "validation_share.samples",
            nth="fifth" if every == 5 else "second",
            every=every,
            batches=evaluation.num_rows,
            spent_ns=spent,
            share=share,
            waited=waited,
            then_ns=then_ns,
            now_ns=now_ns,
            less_frac=1.0 - then_ns / now_ns,
        ),
        severity="low",
        saved_per_step_frac=(now_ns - then_ns) / trained if trained else 0.0,
    )


RULES = (
    Rule("drift", knob="drift", effort="code", judge=_judge_drift),
    Rule("shift", knob="shift", effort="code", judge=_judge_shift),
    Rule("jitter", knob="jitter", effort="semantics", judge=_judge_jitter),
    Rule("memory_creep", knob="memory", effort="code", judge=_judge_memory_creep),
    Rule("worker_restart", knob="persistent_workers", effort="flag", judge=_judge_worker_restart),
    Rule("slow_start", knob="start", effort="argument", judge=_judge_slow_start),
    Rule("warm_up", knob="warm_up", effort="flag", judge=_judge_warm_up),
    Rule("validation_share", knob="validation", effort="semantics", judge=_judge_validation_share),
)
