"""What became of advice, in sentences and as plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from profiler_server.analysis.compare.comparison import Difference
from profiler_server.diagnosis.outcome import LessEvaluation, Outcome, Taken
from profiler_server.format import format_duration, format_share
from profiler_server.store.ledger import NEAR_FRAC


def say_outcome(found: Outcome) -> tuple[str, ...]:
    """Return what became of the advice, a sentence for each suggestion that was taken."""
    lines = [] if found.evaluation is None else [_say_evaluation(found.evaluation)]
    lines += [
        f"“{title}”: no rank is slow any more; the step takes {_say_change(found.step)}." for title in found.mended
    ]
    if found.judged is not None:
        lines.append(_say_taken(found, found.judged))
    elif found.taken:
        names = ", ".join(f"“{entry.title}”" for entry in found.taken)
        now = format_duration(found.step.b_ns)
        lines.append(f"Taken at once: {names}. Their gains cannot be told apart; the step is {now} now.")
    return tuple(lines)


def _say_change(part: Difference) -> str:
    return f"{format_duration(part.b_ns)} instead of {format_duration(part.a_ns)}"


def _say_taken(found: Outcome, taken: Taken) -> str:
    low, high = format_duration(taken.low_ns), format_duration(taken.high_ns)
    promised = f"predicted {format_duration(taken.predicted_ns)}, between {low} and {high}"
    error_frac = found.error_frac or 0.0
    measured = format_duration(found.measured_ns) + ("" if found.is_alone else " without what else became shorter")
    if not found.is_in_range:
        verdict = "faster than the range" if found.measured_ns < taken.low_ns else "slower than the range"
    elif abs(error_frac) > NEAR_FRAC:
        verdict = "inside the range"
    else:
        verdict = "as predicted"
    return (
        f"“{taken.title}”: {promised}; measured {measured}, {verdict} ({_say_error(error_frac)}).{_say_besides(found)}"
    )


def _say_error(error_frac: float) -> str:
    return f"the prediction was {format_share(abs(error_frac))} too {'long' if error_frac > 0 else 'short'}"


def _say_besides(found: Outcome) -> str:
    """Name what changed besides, in sentences that follow another; "" where nothing did."""
    shorter = [part for part in found.besides if part.change_ns < 0]
    longer = [part for part in found.besides if part.change_ns > 0]
    said = f" {_list_changes(shorter)} shorter as well, which this advice did not speak of; " if shorter else ""
    said += f"with that the step is {format_duration(found.step.b_ns)}." if shorter else ""
    return said + (f" {_list_changes(longer)} longer, which counts against it here." if longer else "")


def _list_changes(parts: Sequence[Difference]) -> str:
    sizes = [format_duration(abs(part.change_ns)) for part in parts]
    named = [f"{part.name} {'is ' if part is parts[0] else ''}{size}" for part, size in zip(parts, sizes, strict=True)]
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _say_evaluation(found: LessEvaluation) -> str:
    error_frac = found.predicted_ns / found.measured_ns - 1.0
    verdict = "as predicted" if abs(error_frac) <= NEAR_FRAC else "otherwise than predicted"
    return (
        f"“{found.title}”: predicted {format_duration(found.predicted_ns)} for training and evaluation together instead of "
        f"{format_duration(found.before_ns)}; measured {format_duration(found.measured_ns)} with steps as long as before, "
        f"{verdict} ({_say_error(error_frac)}): evaluation takes {format_duration(found.evaluation_ns)} instead of "
        f"{format_duration(found.evaluation_before_ns)}."
    )


def describe_outcome(found: Outcome | None) -> dict[str, object] | None:
    """Return the outcome as plain data, times in whole ns; None for none."""
    if found is None:
        return None
    return {
        "before_step_ns": round(found.step.a_ns),
        "measured_step_ns": round(found.step.b_ns),
        "judged_step_ns": round(found.measured_ns),
        "taken": [
            {
                "rule": entry.rule,
                "title": entry.title,
                "predicted_step_ns": round(entry.predicted_ns),
                "predicted_low_ns": round(entry.low_ns),
                "predicted_high_ns": round(entry.high_ns),
            }
            for entry in found.taken
        ],
        "is_in_range": found.is_in_range,
        "error_frac": found.error_frac,
        "besides": [{"phase": part.name, "change_ns": round(part.change_ns)} for part in found.besides],
        "evaluation": None if found.evaluation is None else _describe_evaluation(found.evaluation),
        "mended": list(found.mended),
    }


def _describe_evaluation(found: LessEvaluation) -> dict[str, object]:
    values = dataclasses.asdict(found)
    return {name: round(value) if name.endswith("_ns") else value for name, value in values.items()}
