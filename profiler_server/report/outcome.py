"""The outcome of the advice to the earlier run, for reports: the sentences that the pages show, with the figures."""

from __future__ import annotations

from typing import Any

from collector.format.run import Run
from profiler_server.diagnosis.outcome import Outcome, find_outcome
from profiler_server.diagnosis.outcome_sentences import say_outcome
from profiler_server.report.schema import spell_out


def report_outcome(earlier: Run | None, run: Run) -> dict[str, Any] | None:
    if earlier is None or (described := describe_outcome(find_outcome(earlier, run))) is None:
        return None
    return {"earlier": earlier.path.absolute().name, **described}


def list_outcome_lines(outcome: dict[str, Any] | None) -> list[str]:
    return [f"Since {outcome['earlier']}: {line}" for line in outcome["sentences"]] if outcome is not None else []


def describe_outcome(found: Outcome | None) -> dict[str, Any] | None:
    if found is None:
        return None
    described: dict[str, Any] = {
        "sentences": say_outcome(found),
        "before_step_ns": found.step.a_ns,
        "measured_step_ns": found.step.b_ns,
        "judged_step_ns": found.measured_ns,
        "taken": found.taken,
        "is_in_range": found.is_in_range,
        "error_frac": found.error_frac,
        "besides": [{"phase": part.name, "change_ns": part.change_ns} for part in found.besides],
        "evaluation": found.evaluation,
        "mended": found.mended,
        "unpredicted": found.unpredicted,
        "silent": found.silent,
        "least_step_ns": found.least_step_ns,
        "lines": found.lines,
        "code": found.code,
        "settings": found.settings,
    }
    return dict(spell_out(described))
