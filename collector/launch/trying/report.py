"""Show the results of a search for changes that gain, as lines for the terminal and as JSON."""

from __future__ import annotations

from typing import Any

from collector import server
from collector.format.schema.wording import format_number_of
from collector.launch.trying.lines import Places, list_edits
from collector.launch.trying.search import Search, Tried

_TIME_OVER = "not tried, the time was over"


def describe(search: Search) -> dict[str, Any]:
    """Return the results as JSON. Times are ns, gains are shares of the step."""
    return {
        "format": "stepscope-tried",
        "version": 1,
        "runs_as_it_is_ns": [base.step_ns for base in search.bases],
        "is_repeatable": search.is_repeatable,
        "best": [candidate.label for candidate in search.best.candidates] if search.best is not None else [],
        "tried": [_describe_one(search, entry) for entry in search.tried],
    }


def _describe_one(search: Search, entry: Tried) -> dict[str, Any]:
    is_measured = search.is_measured(entry)
    low, high = search.bound_gain(entry) if is_measured else (None, None)
    return {
        "changes": [candidate.label for candidate in entry.candidates],
        "code": [candidate.code for candidate in entry.candidates],
        "change": dict(entry.change),
        "runs": len(entry.known),
        "rounds": _count_rounds(entry),
        "gain_frac": entry.gain_frac if is_measured else None,
        "low_frac": low,
        "high_frac": high,
        "failure": entry.failure or (_explain_range(search, entry) if entry.known and not is_measured else ""),
        "has_same_losses": search.has_same_losses(entry),
        "loss_difference_frac": search.compare_losses(entry),
    }


def list_results(search: Search, places: Places) -> list[str]:
    """Return the lines for the terminal: the saving of each change, and the edits to write."""
    base_ns = search.step_ns
    known = [entry for entry in search.rank() if search.is_measured(entry)]
    unknown = [entry for entry in search.tried if entry not in known]
    width = max((len(entry.label) for entry in search.tried), default=0)
    lines = [f"A step as it is takes {server.format_duration(base_ns)}. What a change saves, with its range:"]
    lines += [f"  {entry.label:<{width}}  {_line_up(search, entry)}" for entry in known]
    for entry in unknown:
        reason = _explain_range(search, entry) if entry.known else _TIME_OVER
        lines.append(f"  {entry.label:<{width}}  {entry.failure or reason}")
    wanted = ["on a quiet host"] if any(entry.known and not entry.failure for entry in unknown) else []
    wanted += ["with a larger --budget"] if search.is_time_over and unknown else []
    lines += [f"Try again {' and '.join(wanted)}."] if wanted else []
    if not search.is_repeatable:
        lines.append("Losses differ between unchanged runs too.")
    if search.best is None:
        return [*lines, "", "No change surely gains."]
    step = server.format_duration(base_ns * (1.0 - search.best.gain_frac))
    lines += [
        "",
        f"Best: {search.best.label}. A step takes {step} instead of {server.format_duration(base_ns)}. Write:",
    ]
    lines += list_edits(search.best.candidates, places)
    difference = search.compare_losses(search.best)
    if search.has_same_losses(search.best) is False and difference is not None:
        lines.append(f"The last loss of a trial differs by {100 * difference:.2g} %.")
    return lines


def _line_up(search: Search, entry: Tried) -> str:
    low, high = search.bound_gain(entry)
    if entry.gain_frac < -1:
        saved = f"{1 - entry.gain_frac:.1f} times as long"
    else:
        saved = f"{100 * entry.gain_frac:6.1f} %  ({100 * low:.0f} to {100 * high:.0f})"
    same = {True: "same losses", False: "other losses", None: ""}[search.has_same_losses(entry)]
    return f"{saved:<24}  {_count_rounds(entry):2d} rounds  {same}".rstrip()


def _count_rounds(entry: Tried) -> int:
    return sum(len(life.logs) for life in entry.known)


def _explain_range(search: Search, entry: Tried) -> str:
    rounds = _count_rounds(entry)
    why = "the rounds differ too much (busy host)" if rounds > 1 else "one round is too few"
    if search.is_too_large(entry):
        gain, most = 100 * entry.gain_frac, 100 * entry.most_frac
        why = f"{gain:.0f} % is more than the setting can gain, {most:.0f} % of the step (busy host)"
    return f"not measured in {format_number_of(rounds, 'round')}: {why}"
