"""Sentences on the outcome of the advice of an earlier run, and on later changes. All pages and reports use them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from profiler_server.analysis.compare.comparison import Difference
from profiler_server.diagnosis.changes import LineChange
from profiler_server.diagnosis.outcome import LessEvaluation, Outcome, Taken
from profiler_server.format import format_duration, say
from profiler_server.store.ledger import NEAR_FRAC


def say_outcome(found: Outcome) -> tuple[str, ...]:
    """Return sentences on the advice that was followed and its outcome, then on the lines, code and settings that
    changed."""
    return tuple(_list_sentences(found))


def _list_sentences(found: Outcome) -> Iterator[str]:
    step = say("outcome", "step" if found.step.is_clear or found.lines else "same", found=found)
    if found.evaluation is not None:
        yield _say_evaluation(found.evaluation)
    yield from (say("outcome", "mended", title=title, step=step) for title in found.mended)
    if found.judged is not None:
        yield _say_taken(found, found.judged)
    elif found.taken:
        yield say(
            "outcome", "at_once", titles=_quote((*(entry.title for entry in found.taken), *found.beside)), found=found
        )
    lines = "; ".join(_say_line(found, line) for line in found.lines)
    rest = _begin(say("outcome", "lines", lines=lines, step=step))
    for kind, titles in (("unpredicted", found.unpredicted), ("silent", found.silent)):
        if titles:
            yield say("outcome", kind, titles=_quote(titles), count=len(titles), rest=rest, found=found)
    if lines and not found.unpredicted and not found.silent:
        yield f"{rest}."
    changed = [say("outcome", "code", code=code) for code in found.code]
    changed += [say("outcome", "setting", setting=setting) for setting in found.settings]
    if changed:
        is_first = not (found.taken or found.mended or found.unpredicted or found.silent or lines)
        yield say("outcome", "differ", changed="; ".join(changed), step=_begin(step) if is_first else "")


def _begin(sentence: str) -> str:
    """Return a sentence with a capital letter at its start, unless it begins with a name from the user's code."""
    return f"T{sentence[1:]}" if sentence.startswith("the ") else sentence


def _quote(titles: Iterable[str]) -> str:
    return ", ".join(f"“{title}”" for title in titles)


def _say_line(found: Outcome, line: LineChange) -> str:
    if line.is_loading:
        return say("outcome", "loading", line=line, found=found)
    kind = "new" if not line.before_ns else "gone" if not line.after_ns else "changed"
    kind = ("at_most" if line.change_ns < 0 else "at_least") if line.is_bound else kind
    return say("outcome", kind, line=line)


def _say_taken(found: Outcome, taken: Taken) -> str:
    error_frac = found.error_frac or 0.0
    if not found.is_in_range:
        verdict = "faster" if found.measured_ns < taken.predicted_low_ns else "slower"
    else:
        verdict = "inside" if abs(error_frac) > NEAR_FRAC else "near"
    alone = "" if found.is_alone else say("outcome", "not_alone")
    words = {"verdict": say("outcome", verdict), "error": _say_error(error_frac), "alone": alone}
    return " ".join([say("outcome", "predicted", found=found, taken=taken, **words), *_list_besides(found)])


def _say_error(error_frac: float) -> str:
    return say("outcome", "long" if error_frac > 0 else "short", error_frac=abs(error_frac))


def _list_besides(found: Outcome) -> Iterator[str]:
    for kind, sign in (("besides_shorter", -1), ("besides_longer", 1)):
        parts = [part for part in found.besides if part.change_ns * sign > 0]
        if parts:
            yield say("outcome", kind, parts=_list_changes(parts), found=found)


def _list_changes(parts: Sequence[Difference]) -> str:
    sizes = [format_duration(abs(part.change_ns)) for part in parts]
    named = [f"{part.name} {'is ' if part is parts[0] else ''}{size}" for part, size in zip(parts, sizes, strict=True)]
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _say_evaluation(found: LessEvaluation) -> str:
    error_frac = found.predicted_ns / found.measured_ns - 1.0
    verdict = say("outcome", "near" if abs(error_frac) <= NEAR_FRAC else "otherwise")
    return say("outcome", "evaluation", less=found, verdict=verdict, error=_say_error(error_frac))
