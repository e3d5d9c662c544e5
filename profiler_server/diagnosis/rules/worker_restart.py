"""Workers are started anew for every epoch."""

from __future__ import annotations

import numpy as np

from profiler_server.diagnosis.limits import MIN_RESTARTS
from profiler_server.diagnosis.what_if import drop_extra
from profiler_server.diagnosis.wording import STEPS_PAGE, write_loader
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.loading import Floats
from profiler_server.facts.steps import Mask, read_column
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
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
        evidence=(STEPS_PAGE,),
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


RULE = Rule("worker_restart", knob="persistent_workers", effort="flag", judge=_judge)
