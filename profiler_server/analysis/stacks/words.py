"""A named function in words."""

from __future__ import annotations

from profiler_server.analysis.stacks.naming import NamedFunction


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
