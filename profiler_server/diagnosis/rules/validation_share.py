"""A large part of the run is evaluation."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.steps import read_integers
from profiler_server.diagnosis.case import STEPS_PAGE, Case, Finding, Rule
from profiler_server.format import format_duration, format_share

_SHARE = 0.25


def _judge(case: Case) -> Finding | None:
    rows = case.other_rows
    evaluation = rows.filter(pc.equal(rows["kind"].cast(pa.string()), "eval"))
    spent = int(read_integers(evaluation, "duration_ns").sum())
    trained = int(read_integers(case.train, "duration_ns").sum())
    share = spent / (spent + trained) if spent else 0.0
    if share < _SHARE:
        return None
    waited = int(read_integers(evaluation, "data_wait_ns").sum()) / spent
    return Finding(
        title="Evaluation takes a large part of the run",
        measured=f"{evaluation.num_rows} evaluation batches took {format_duration(spent)}, {format_share(share)} of the "
        f"time of training and evaluation; {format_share(waited)} of that is waiting for data.",
        threshold=f"More than {format_share(_SHARE)}.",
        advice="Evaluate less often or on a fixed part of the data; give the evaluation's loader workers of its own "
        "and a larger batch, which needs no gradients.",
        change="if epoch % 5 == 0:\n    evaluate(model, validation_loader)",
        fix="evaluating less often",
        evidence=(STEPS_PAGE,),
        severity="low",
    )


RULE = Rule("validation_share", knob="validation", effort="semantics", judge=_judge)
