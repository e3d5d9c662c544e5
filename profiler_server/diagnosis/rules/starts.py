"""What starting takes: workers, and the first steps."""

from __future__ import annotations

import numpy as np

from profiler_server.diagnosis.limits.course import MIN_RESTARTS, WARM_UP_FRAC, WARM_UP_NS
from profiler_server.diagnosis.what_if import drop_extra
from profiler_server.diagnosis.wording import write_loader
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.loading import Floats
from profiler_server.facts.results import Evidence
from profiler_server.facts.steps import Mask, read_column
from profiler_server.format import format_duration, format_share


def _judge_worker_restart(case: Case) -> Finding | None:
    """Workers are started anew for every epoch."""
    loader = case.loading.loader
    if loader is None or not loader.num_workers or (loader.persistent_workers and not loader.remade):
        return None
    selection = case.steps.selection
    restarts = selection.first_of_epoch & selection.kept
    if restarts.sum() < MIN_RESTARTS or restarts.sum() == selection.kept.sum():
        return None
    saved = _measure_restarts(case, restarts, loader.num_workers)
    per_step = float(saved.sum()) / int(selection.kept.sum())
    steps = int(selection.kept.sum()) / int(restarts.sum())
    once = "  # made once, before the loop over epochs" if loader.remade else ""
    return Finding(
        title="The DataLoader is created again in every epoch"
        if loader.remade
        else "Workers are restarted in every epoch",
        measured=f"{int(restarts.sum())} restarts cost {format_duration(float(saved.mean()))} each, once in "
        f"{steps:.0f} steps: {format_share(per_step / case.steps.mean_ns)} of the steps' time.",
        threshold="Two restarts or more, because persistent_workers is off or because the DataLoader is created again.",
        advice="Make the DataLoader once, before the loop over epochs, and keep its workers alive between epochs; their memory "
        "stays allocated."
        if loader.remade
        else "Keep the workers alive between epochs; their memory stays allocated.",
        change=f"loader = {write_loader(loader, persistent_workers=True)}{once}",
        fix="one DataLoader with persistent_workers=True" if loader.remade else "persistent_workers=True",
        settings={"persistent_workers": True},
        what_if=drop_extra(case, per_step),
        tier="A",
        gain_range=(0.8, 1.1),
    )


def _measure_restarts(case: Case, restarts: Mask, workers: int) -> Floats:
    """Return for each restart how much longer its epoch's first steps wait for data than steps usually do, ns.

    Each worker is late with its first batch. The first batch has to be made even by a worker that lives.
    """
    kept = np.flatnonzero(case.steps.selection.kept)
    waits = read_column(case.steps.rows, "data_wait_ns")[kept]
    usual = float(np.median(waits))
    first = np.flatnonzero(restarts[kept])
    after = np.minimum(first + workers, np.append(first[1:], len(kept)))
    begun = np.maximum(waits[first] - usual - case.loading.batch_ns, 0.0)
    late = [np.maximum(waits[at + 1 : end] - usual, 0.0).sum() for at, end in zip(first, after, strict=True)]
    return np.asarray(begun + np.array(late), np.float64)


_FORKED = (
    "Making the iterator of a dataset takes long: do in the worker, at its first sample, what the dataset does at once."
)
_SPAWNED = (
    "Each worker starts a new Python, imports the script's modules, and gets a copy of the dataset. Keep the dataset small "
    "(paths, not samples), import what is heavy only where it is used, or start workers by fork or forkserver."
)


def _judge_slow_start(case: Case) -> Finding | None:
    """The loader took long to start."""
    loader, rows = case.loading.loader, case.steps.rows
    if loader is None or not loader.num_workers or not rows.num_rows:
        return None
    started_ns = int(read_column(rows, "loader_start_ns")[0])
    share = started_ns / float(read_column(rows, "duration_ns").sum())
    if started_ns < WARM_UP_NS or share < WARM_UP_FRAC:
        return None
    forks = loader.start_method == "fork"
    return Finding(
        title="The workers take long to start",
        measured=f"Starting {loader.num_workers} workers ({loader.start_method or 'start method not known'}) took "
        f"{format_duration(started_ns)}, {format_share(share)} of the recorded training.",
        threshold=f"At least {format_duration(WARM_UP_NS)} and {format_share(WARM_UP_FRAC)} of the recorded training.",
        advice=_FORKED if forks else _SPAWNED,
        change='loader = DataLoader(dataset, num_workers=4, persistent_workers=True, multiprocessing_context="forkserver")',
        fix="workers that start quickly",
        evidence=(Evidence("steps", "step=1", "The first step"),),
    )


def _judge_warm_up(case: Case) -> Finding | None:
    """The first steps took a large part of the run."""
    selection = case.steps.selection
    if not selection.warm_up.any():
        return None
    steps = int(selection.warm_up.sum())
    extra = float(selection.duration_ns[selection.warm_up].sum()) - steps * float(
        np.mean(case.loading.loop.regular_step_ns)
    )
    share = extra / float(selection.duration_ns.sum())
    if extra < WARM_UP_NS or share < WARM_UP_FRAC:
        return None
    return Finding(
        title="The first steps are slow",
        measured=f"The first {'step' if steps == 1 else f'{steps} steps'} took {format_duration(extra)} more than usual, {format_share(share)} of the "
        "recorded training. They are not in the averages.",
        threshold=f"At least {format_duration(WARM_UP_NS)} and {format_share(WARM_UP_FRAC)} of the recorded training.",
        advice="This does not matter in a long run. If runs are short, keep compiled code between runs and start the workers early.",
        change="TORCHINDUCTOR_CACHE_DIR=/a/disk/that/stays python train.py",
        fix="a shorter warm-up",
        evidence=(Evidence("steps", "step=1", "The first step"),),
    )


RULES = (
    Rule("worker_restart", knob="persistent_workers", effort="flag", judge=_judge_worker_restart),
    Rule("slow_start", knob="start", effort="argument", judge=_judge_slow_start),
    Rule("warm_up", knob="warm_up", effort="flag", judge=_judge_warm_up),
)
