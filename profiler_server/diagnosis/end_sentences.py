"""Sentences on how a job ended or stands still: the first line of every page and report of such a job."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path

from collector.format.attempts import list_attempts
from collector.format.rank import RankRun
from collector.format.run import Run
from collector.format.schema.errors import RunError
from collector.format.schema.wording import format_number_of, format_ranks_named
from collector.format.standstills import Standstill, read_standstills
from collector.hangs.blame import Stop, name_group
from collector.hangs.live import Standing, describe_live_hang
from collector.hangs.positions import describe_position, describe_stack
from collector.hangs.recorded import describe_standstills
from profiler_server.analysis.ranks.ending import count_ended, find_end
from profiler_server.analysis.ranks.ends import (
    Collective,
    CutOff,
    Death,
    End,
    Hang,
    Killed,
    LeftOut,
    Meeting,
    Mismatch,
    Raised,
    Severed,
)
from profiler_server.facts.ranks import MOST_RANKS
from profiler_server.format import format_bytes, shorten_middle

_LONGEST = 120
_SOURCE = re.compile(r"\[\S+\.(cc|cpp|h):\d+\]")
"""A file and line in the source of gloo or PyTorch, at the start of their error messages."""
_MEMORY = " The log of the system tells whether its memory was full."


def name_title(end: End) -> str:
    """Return the title of a notice on an end."""
    if isinstance(end, Hang):
        return end.title
    return "The job stands still" if isinstance(end, Standing) else "The job did not end well"


@singledispatch
def describe_end(end: End) -> str:
    """Describe how a job ended, or how it stands still."""
    raise TypeError(end)


@describe_end.register
def _describe_hang(end: Hang) -> str:
    return end.sentence


@describe_end.register
def describe_standing(end: Standing) -> str:
    """Describe how a job that is still recording stands still."""
    size = end.stop.bytes if end.stop is not None else None
    return describe_live_hang(end, format_bytes(size) if size else "")


@describe_end.register
def _describe_left_out(end: LeftOut) -> str:
    has = "has" if len(end.ranks) == 1 else "have"
    met = end.meeting
    return (
        f"{format_ranks_named(end.ranks).capitalize()} {has} left out {_name_meeting(met)}, which "
        f"{format_ranks_named(met.entered)} entered in step {met.step:,}{_say_then(end.then)}."
    )


@describe_end.register
def _describe_mismatch(end: Mismatch) -> str:
    met = end.meeting
    return (
        f"{format_ranks_named(end.ranks).capitalize()} called {_name_call(end.called)} where "
        f"{format_ranks_named(met.entered)} called {_name_meeting(met)}, in step {met.step:,}{_say_then(end.then)}."
    )


@describe_end.register
def _describe_raised(end: Raised) -> str:
    how = f"was ended {_say_when(end.steps)} by {_shorten(end.error)}"
    if not end.ranks:
        return f"The training {how}."
    whom = "it" if len(end.ranks) == 1 else "them"
    return f"The job {how} ({format_ranks_named(end.ranks)}){_say_lost(end.lost, whom)}."


@describe_end.register
def _describe_killed(end: Killed) -> str:
    death = end.death
    others = _say_lost(end.lost, "it")
    others += f"; {_count_others(end.ended)} {'was' if end.ended == 1 else 'were'} ended after it" if end.ended else ""
    if death.signal is None and death.exit_code is None:
        return f"Rank {death.rank} was killed, left by itself, or lost its machine: it left no error{others}.{_MEMORY}"
    text = f"Rank {death.rank} {_say_death(death)} {_say_when(end.steps)}{others}."
    return text + (_MEMORY if death.signal == signal.SIGKILL else "")


@describe_end.register
def describe_stop(end: Stop) -> str:
    """Describe which rank the others waited for when a job hung or was killed, and where that rank was."""
    first = end.missing[0]
    who = format_ranks_named([place.rank for place in end.missing]).capitalize()
    waits = "1 rank was" if len(end.waiting) == 1 else f"{len(end.waiting):,} ranks were"
    where = f"Rank {first.rank} was {describe_position(first)}{describe_stack(first)}."
    if end.number is None:
        return (
            f"When the job ended, {waits} in the backward, which waits for the gradients of all ranks, and {who[0].lower()}"
            f"{who[1:]} not. {where}"
        )
    size = f", {format_bytes(end.bytes)}" if end.bytes else ""
    like = f" ({'' if end.is_begun else 'by the step before, '}{end.name}{size})" if end.name else ""
    more = f", {end.elsewhere:,} more in others" if end.elsewhere else ""
    what = f"collective {end.number:,}{like}{name_group(end)}"
    return f"{who} never entered {what}; {waits} waiting in it when the job ended{more}. {where}"


@describe_end.register
def _describe_cut_off(end: CutOff) -> str:
    one = len(end.ranks) < 2
    was = f"{format_ranks_named(end.ranks).capitalize() if end.ranks else 'The training'} {'was' if one else 'were'}"
    if end.signal is None:
        how = "left by itself, or lost its machine" if one else "left by themselves, or lost their machine"
        return f"{was} killed, {how} {_say_when(end.steps)}: no error was left."
    memory = _MEMORY if end.signal == signal.SIGKILL else ""
    return f"{was} ended by {_name_signal(end.signal)} {_say_when(end.steps)}: no error was left.{memory}"


@describe_end.register
def _describe_severed(end: Severed) -> str:
    return (
        f"{format_ranks_named(end.ranks).capitalize()} failed in communication {_say_when(end.steps)}, and no rank left an "
        f"error of its own: {_shorten(end.error)}."
    )


@dataclass(frozen=True)
class AttemptLine:
    """One attempt of a job. `text` is how the attempt ended, "" if it still records or ended well. `is_this` marks the
    current run."""

    number: int
    path: Path
    steps: int
    end: End | None
    text: str
    is_this: bool


def list_attempt_lines(run: Run) -> tuple[AttemptLine, ...]:
    """Return all attempts of a run's job, in order; empty for a job that was started once."""
    found = []
    for attempt in list_attempts(run.path):
        each = Run(attempt.path, run.redactor)
        steps, end = 0, None
        with contextlib.suppress(RunError):
            steps, end = count_ended(each), find_end(each)
        found.append(
            AttemptLine(attempt.number, attempt.path, steps, end, _tell_end(end, steps), attempt.path == run.path)
        )
    return tuple(found)


def say_attempts(lines: Sequence[AttemptLine]) -> str:
    """Describe which attempt of its job a run is, and how the others ended; "" for a job that was started once."""
    own = next((line for line in lines if line.is_this), None)
    if own is None:
        return ""
    others = (f"; attempt {line.number} {line.text}" for line in lines if line.text and not line.is_this)
    return f"Attempt {own.number} of {lines[-1].number}{''.join(others)}."


def spell_reports(lines: Sequence[AttemptLine]) -> list[str]:
    """Return the report command of each other attempt that failed, one line each."""
    return [
        f"Attempt {line.number}: profiler-server report {shlex.quote(str(line.path))}"
        for line in lines
        if line.text and not line.is_this
    ]


def say_first(run: Run, has_steps: bool) -> str:
    """Return the first line of a run's page: how its job ended or stands still, "" for neither.

    For an attempt without a step, the line describes how the earlier attempts ended, because the job failed in them.
    """
    end = find_end(run)
    told = describe_end(end) if end is not None else ""
    attempts = "" if has_steps else say_attempts(list_attempt_lines(run))
    return f"{attempts} In this attempt: {told}" if attempts and told else attempts or told


def recall_standstills(ranks: Iterable[RankRun]) -> str:
    """Describe when and where a job stood still before it went on; "" if it never did."""
    found: list[Standstill] = []
    for rank in itertools.islice(ranks, MOST_RANKS):
        with contextlib.suppress(RunError):
            found += read_standstills(rank.rank, rank.manifest.facts)
    return describe_standstills(found)


def _tell_end(end: End | None, steps: int) -> str:
    """Return `ended after 60 steps: rank 0, RuntimeError: …`; "" for an attempt that still records or ended well."""
    if end is None or isinstance(end, Standing):
        return ""
    told = end.steps if isinstance(end, (Raised, Killed, CutOff, Severed)) else steps
    return f"ended {_say_when(told)}: {_name_end(end)}"


def _name_end(end: End) -> str:
    """Return an end in a few words, the rank first."""
    if isinstance(end, Raised):
        return ", ".join([*([format_ranks_named(end.ranks)] if end.ranks else []), _shorten(end.error)])
    if isinstance(end, Killed):
        how = _name_signal(end.death.signal) if end.death.signal is not None else "killed"
        return f"rank {end.death.rank}, {how}"
    text = describe_end(end).rstrip(".")
    return text[:1].lower() + text[1:]


def _name_call(call: Collective, number: int | None = None) -> str:
    size = f" ({format_bytes(call.bytes)})" if call.bytes else ""
    return f"{call.name}{f' {number:,}' if number is not None else ''}{size}"


def _name_meeting(met: Meeting) -> str:
    return _name_call(met.call, met.number) + (f" of group {shorten_middle(met.group, 32)}" if met.group else "")


def _say_then(deaths: Sequence[Death]) -> str:
    if not deaths:
        return ""
    was = "was" if len(deaths) == 1 else "were"
    return f"; {format_ranks_named([death.rank for death in deaths])} {was} ended by {_name_signal(deaths[0].signal)}"


def _say_death(death: Death) -> str:
    if death.signal is None:
        return f"left with exit code {death.exit_code}"
    return f"was ended by {_name_signal(death.signal)}"


def _name_signal(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"


def _say_when(steps: int) -> str:
    return f"after {format_number_of(steps, 'step')}" if steps else "before the first step"


def _say_lost(lost: int, whom: str) -> str:
    return f"; {_count_others(lost)} lost the connection to {whom}" if lost else ""


def _count_others(ranks: int) -> str:
    return "1 other rank" if ranks == 1 else f"{ranks:,} other ranks"


def _shorten(error: str) -> str:
    return shorten_middle(" ".join(_SOURCE.sub("", error).split()), _LONGEST).rstrip(".")
