"""The function that takes most of a phase or a stage, as rules say it and take it away."""

from __future__ import annotations

from dataclasses import replace

from profiler_server.diagnosis.what_if import scale_stages
from profiler_server.facts.case import Case, Finding
from profiler_server.facts.loading import BatchTimes
from profiler_server.facts.steps import NamedFunction, Part

_MOST_SAID = 2
_LEAST_SAID_FRAC = 0.15
_CERTAIN_LOSS, _CERTAIN_GAIN = 0.5, 1.05
"""Of the gain that the share of a function promises: a call can seldom be left out altogether, and costs what it costs."""


def find_in_phases(case: Case, *phases: str) -> Part | None:
    """Return what ran in phases of the training thread, taken together; None where no stacks were sampled."""
    return case.stacks.phases[phases] if case.stacks is not None else None


def find_in_stage(case: Case, stage: str) -> Part | None:
    """Return what ran in a stage of the loader that the steps wait for."""
    if case.stacks is None or case.loading.loader is None:
        return None
    found = case.stacks.stages[(stage,)]
    if found.functions or stage != "read" or case.loading.transforms:
        return found
    return case.stacks.stages[("read", "fetch")]  # there is nothing else that it could be


def find_dominant(part: Part | None) -> NamedFunction | None:
    return part.dominant if part is not None else None


def say_functions(part: Part | None, whole: str) -> str:
    """Return a sentence, after another one, on what takes the most; "" where nothing is named."""
    said = [entry for entry in (part.functions if part is not None else ())[:_MOST_SAID] if _is_worth_saying(entry)]
    if not said:
        return ""
    assert part is not None
    first, *others = said
    text = f"{spell_function(first)} is {spell_share(first)} of {whole}"
    text += "".join(f", {spell_function(entry)} {spell_share(entry)}" for entry in others)
    return f" {text} ({part.samples:,} samples)."


def blame_function(case: Case, batches: BatchTimes, found: Finding, part: Part | None) -> Finding:
    """Return the finding on a stage with the function that is most of it, which is then what is taken away."""
    culprit = find_dominant(part)
    if culprit is None or part is None:
        return found
    call, stage = name_call(culprit), part.name
    base = found.title.partition(":")[0]
    return replace(
        found,
        title=f"{base}: {call}",
        advice=f"{spell_function(culprit)} is most of it: do it once and store the result, or do less of it. "
        f"{found.advice}",
        fix=f"taking {call} out",
        assumption=f"{call} took no time",
        what_if=scale_stages(case, batches, (stage,), 1.0 - culprit.share_frac),
        gain_range=bound_gain(culprit),
    )


def _is_worth_saying(entry: NamedFunction) -> bool:
    return entry.share_frac >= _LEAST_SAID_FRAC


def name_call(entry: NamedFunction) -> str:
    """Return the function in a title or an advice: by its name, or by the line where that alone is known."""
    return f"what {entry.place} does" if entry.is_own_line else spell_call(entry)


def bound_gain(entry: NamedFunction) -> tuple[float, float]:
    """Return the part of the gain that can be expected of taking a function away, with the error of its share."""
    low, high = entry.low_frac / entry.share_frac, entry.high_frac / entry.share_frac
    return _CERTAIN_LOSS * low, _CERTAIN_GAIN * high


def spell_call(entry: NamedFunction) -> str:
    """Return the function as it is called: `accuracy()`; a script is none."""
    return entry.function if entry.function.endswith((".py", ")")) else f"{entry.function}()"


def spell_function(entry: NamedFunction) -> str:
    """Say which function it is, and where: `accuracy() at train.py:88`."""
    if entry.is_own_line:
        return f"{entry.function} itself at {entry.place}"
    if entry.caller:
        return f"{spell_call(entry)} called in {entry.caller} ({entry.place})"
    return f"{spell_call(entry)} at {entry.place}"


def spell_share(entry: NamedFunction) -> str:
    """Return its share with the error of counting: `61 ± 9 %`. A share from samples has no more digits than these."""
    return f"{round(100 * entry.share_frac)} ± {max(round(100 * entry.error_frac), 1)} %"
