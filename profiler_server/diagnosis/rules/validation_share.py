"""A large part of the run is evaluation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from profiler_server.diagnosis.limits.course import EVALUATION_FRAC
from profiler_server.diagnosis.what_if import sum_recorded_ns
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.steps import read_column
from profiler_server.format import format_duration, format_share


def _advise_on_calls(calls: int, spent_ns: int, share: float) -> Finding:
    """Return what is said where no loader feeds the calls: they may be a rollout as well as an evaluation."""
    return Finding(
        title="Calls of the model without gradients take a large part of the run",
        measured=f"{calls} calls of the model without gradients, between the steps and fed by no loader, took "
        f"{format_duration(spent_ns)} with all that is done between them, {format_share(share)} of the recorded time.",
        threshold=f"At least {format_share(EVALUATION_FRAC)} of the recorded time.",
        advice="If they collect experience, as a rollout of reinforcement learning does: step several environments at "
        "once, in processes of their own if they compute, so that one call of the model serves all of them. If they "
        "evaluate: do it less often or on fewer samples.",
        change="observations = torch.stack([environment.observe() for environment in environments])\n"
        "actions = policy(observations)  # one call for all of them",
        fix="fewer calls without gradients",
        severity="low",
    )


@dataclass(frozen=True)
class _Less:
    """A way to evaluate less: how, in code and in words, and the part of the evaluation that is left."""

    change: str
    words: str
    left_frac: float


def _choose_less(passes: int) -> _Less:
    """Return every fifth pass where there are five, every second one where there are two, else half of the samples."""
    if passes < 2:
        some = (
            "part = torch.utils.data.Subset(validation_data, range(0, len(validation_data), 2))  # half of the samples"
        )
        return _Less(f"{some}\nevaluate(model, DataLoader(part, batch_size=64))", "With half of the samples", 0.5)
    every = 5 if passes >= 5 else 2
    change = (
        f"if epoch % {every} == 0:  # or the count of evaluations, where they are not one an epoch\n"
        "    evaluate(model, validation_loader)"
    )
    times = {5: "every fifth time", 2: "every second time"}[every]
    return _Less(change, f"Evaluated {times}", math.ceil(passes / every) / passes)


def _judge(case: Case) -> Finding | None:
    rows = case.steps.other_rows
    evaluation = rows.filter(pc.equal(rows["kind"].cast(pa.string()), "eval"))
    spent = int(read_column(evaluation, "duration_ns").sum())
    trained = int(read_column(case.steps.rows, "duration_ns").sum())
    share = spent / sum_recorded_ns(case) if spent else 0.0
    if share < EVALUATION_FRAC:
        return None
    if not read_column(evaluation, "fetches").any() and evaluation["loader"].null_count == evaluation.num_rows:
        return _advise_on_calls(evaluation.num_rows, spent, share)
    passes = len(case.steps.interruptions.of_kind("validation").start_ns)
    less, now_ns = _choose_less(passes), spent + trained
    then_ns = trained + less.left_frac * spent
    waited = int(read_column(evaluation, "data_wait_ns").sum()) / spent
    return Finding(
        title="Evaluation takes a large part of the run",
        measured=f"{evaluation.num_rows} evaluation batches took {format_duration(spent)}, {format_share(share)} of the "
        f"recorded time; {format_share(waited)} of the evaluation is waiting for data.",
        threshold=f"At least {format_share(EVALUATION_FRAC)} of the recorded time.",
        advice=f"{less.words}, training and evaluation would take {format_duration(then_ns)} "
        f"instead of {format_duration(now_ns)} ({format_share(1.0 - then_ns / now_ns)} less); a step is as long as before. Or give the evaluation's loader workers "
        "of its own and a larger batch, which fits because no gradients are kept.",
        change=less.change,
        fix="evaluating less often",
        severity="low",
        saved_per_step_frac=(now_ns - then_ns) / trained if trained else 0.0,
    )


RULES = (Rule("validation_share", knob="validation", effort="semantics", judge=_judge),)
