"""Sentences on how a job ended or stands still. They are the first line of every page and report of such a job."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from collector.format.attempts import find_home, list_attempts
from collector.format.rank import RankRun
from collector.format.run import Run
from collector.format.schema.errors import RunError
from collector.format.schema.removal import SCRATCH_FILE
from collector.format.schema.wording import format_ranks_named
from collector.format.standstills import Standstill, read_standstills
from collector.hangs.blame import Stop, name_group
from collector.hangs.live import Standing, describe_live_hang
from collector.hangs.positions import describe_position, describe_stack
from collector.hangs.recorded import describe_standstills
from profiler_server.analysis.ranks.ending import count_ended, find_end
from profiler_server.analysis.ranks.ends import (
    Collective,
    CutOff,
    End,
    Hang,
    Killed,
    LeftOut,
    Mismatch,
    OutOfMemory,
    Raised,
    Severed,
)
from profiler_server.analysis.steps.job_time import measure_job_time
from profiler_server.diagnosis.shortage_sentences import describe_shortage, explain_shortage
from profiler_server.facts.ranks import MOST_RANKS
from profiler_server.facts.useful import JobTime
from profiler_server.format import format_bytes, format_share, name_kind, say, shorten_middle

_LONGEST = 120
_LEAST_FRAC = 0.001
"""Share of a job's time below which a part of it has no place in the sentence."""
_SOURCE = re.compile(r"\[\S+\.(cc|cpp|h):\d+\]")
"""A file and line in the source of gloo or PyTorch, at the start of their error messages."""


def name_title(end: End) -> str:
    """Return the title of a notice on the end of a job."""
    if isinstance(end, Hang):
        return end.title
    return "The job stands still" if isinstance(end, Standing) else "The job did not end well"


def find_kind(end: End) -> str:
    """Return the kind of an end, as it is named in reports and in the keys of texts."""
    return "waited" if isinstance(end, Stop) else name_kind(end)


def describe_end(end: End) -> str:
    """Return one or more sentences on how a job ended or stands still."""
    return f"{head_end(end)} {explain_end(end)}".rstrip()


def explain_end(end: End | None) -> str:
    """Return sentences on why a job ended, to follow those of `head_end`; "" where these say all that is known."""
    return explain_shortage(end) if isinstance(end, OutOfMemory) else ""


def head_end(end: End) -> str:
    """Return the sentences of `describe_end` that are a headline."""
    match end:
        case Hang():
            return end.told or _describe_hang(end)
        case Standing():
            size = end.stop.bytes if end.stop is not None else None
            return describe_live_hang(end, format_bytes(size) if size else "")
        case Stop():
            return _describe_stop(end)
        case LeftOut() | Mismatch():
            called = _name_call(end.called) if isinstance(end, Mismatch) else ""
            dead, by = [death.rank for death in end.then], end.then[0].signal if end.then else None
            met = _name_call(end.meeting.call, end.meeting.number, end.meeting.group)
            return say("end", find_kind(end), end=end, met=met, called=called, dead=dead, signal=by)
        case OutOfMemory():
            return describe_shortage(end)
        case Raised() | Severed():
            is_alone = isinstance(end, Raised) and not end.ranks
            return say("end", "raised_alone" if is_alone else find_kind(end), end=end, error=_shorten(end.error))
        case Killed() | CutOff():
            return _describe_death(end)


def _describe_hang(end: Hang) -> str:
    figures: dict[str, object] = {"end": end, "group": end.label or end.group}
    if end.cause == "pair":
        ((rank, (number, call)),) = end.last.items()
        others = [other for other in end.waiting if other != rank]
        return say("hang", "pair", rank=rank, number=number, call=call, others=others, **figures)
    differs = min(end.differing, default=-1)
    figures |= {"differs": differs, "called": end.differing.get(differs), "what": say("hang", "what", **figures)}
    text = say("hang", end.cause, **figures)
    if end.cause != "missing" or (known := end.last.get(end.missing[0])) is None:
        return text
    return f"{text} {say('hang', 'last', rank=end.missing[0], number=known[0], call=known[1])}"


def _describe_death(end: Killed | CutOff) -> str:
    by = end.death.signal if isinstance(end, Killed) else end.signal
    log = say("end", "log") if by in (None, signal.SIGKILL) else ""
    if isinstance(end, Killed):
        how = "killed" if by is not None else "killed_unseen" if end.death.exit_code is None else "killed_exit"
        return say("end", how, end=end, signal=by, others=say("end", "others", end=end), log=log)
    who = format_ranks_named(end.ranks).capitalize() if end.ranks else "The training"
    how = "cut_off" if by is not None else "cut_off_unseen"
    return say("end", how, end=end, signal=by, who=who, count=max(1, len(end.ranks)), log=log)


def _describe_stop(end: Stop) -> str:
    """Return a sentence on which rank the others waited for when a job hung or was ended, and where this rank was."""
    first = end.missing[0]
    figures = {
        "missing": [place.rank for place in end.missing],
        "called": say("end", "called" if end.is_begun else "called_before", end=end) if end.name else "",
        "group": name_group(end),
        "where": f"Rank {first.rank} was {describe_position(first)}{describe_stack(first)}.",
    }
    return say("end", "waited" if end.number is not None else "waited_backward", end=end, **figures)


@dataclass(frozen=True)
class AttemptLine:
    """One attempt of a job, with its number of training steps. `text` is how it ended, "" if it still records or ended
    well. `is_this`: the attempt is the run that was asked for."""

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
    """Return text on which attempt a run is, and how other attempts failed; "" for a job that was started once."""
    own = next((line for line in lines if line.is_this), None)
    if own is None:
        return ""
    others = (say("attempt", "other", line=line) for line in lines if line.text and not line.is_this)
    return say("attempt", "this", number=own.number, count=lines[-1].number, others="".join(others))


def find_job_time(run: Run) -> JobTime | None:
    """Return the useful time of the run's job, of all attempts; None for a job that was started once."""
    return measure_job_time(list_attempts(run.path))


def say_job_time(job: JobTime | None) -> str:
    """Return which share of the time of all attempts was useful, and where the rest went; "" if `job` is None."""
    if job is None:
        return ""
    rest_ns = {
        "start_up": job.start_up_ns,
        "repeated": job.steps_ns - job.kept_high_ns if not job.unknown else 0,
        "between": job.between_ns,
        "saving": job.saving_ns,
        "evaluation": job.evaluation_ns,
        "remaining": job.other_ns,
    }
    shares = {
        name: took_ns / job.total_ns for name, took_ns in rest_ns.items() if took_ns >= _LEAST_FRAC * job.total_ns
    }
    ordered = sorted(shares.items(), key=lambda entry: -entry[1])
    rest = ", ".join(f"{say('attempt', name, job=job)} {format_share(share)}" for name, share in ordered if share)
    unknown = ", ".join(map(str, job.unknown))
    return say("attempt", "useful_bounds" if unknown else "useful", job=job, rest=rest, unknown=unknown)


def spell_reports(lines: Sequence[AttemptLine]) -> list[str]:
    """Return one line per other attempt that failed: its number and the command that prints its report. None of a pack
    that is open: its folder is gone when the command ends.
    """
    return [
        f"Attempt {line.number}: stepscope report {shlex.quote(str(line.path))}"
        for line in lines
        if line.text and not line.is_this and not (find_home(line.path).parent / SCRATCH_FILE).exists()
    ]


def say_first(run: Run, has_steps: bool) -> str:
    """Return the headline of a run's page: how its job ended or stands still; "" for neither.

    If the run is an attempt without a step, the line begins with the other attempts, because the job failed in them.
    """
    end = find_end(run)
    told = head_end(end) if end is not None else ""
    attempts = "" if has_steps else say_attempts(list_attempt_lines(run))
    return f"{attempts} In this attempt: {told}" if attempts and told else attempts or told


def recall_standstills(ranks: Iterable[RankRun]) -> str:
    """Return text on when and where a job stood still and then went on; "" if the job never did."""
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
    return say("attempt", "ended", steps=told, how=_name_end(end))


def _name_end(end: End) -> str:
    if isinstance(end, Raised):
        return say("attempt", "raised", end=end, error=_shorten(end.error))
    if isinstance(end, Killed):
        return say("attempt", "killed" if end.death.signal is not None else "killed_unseen", end=end)
    text = describe_end(end).rstrip(".")
    return text[:1].lower() + text[1:]


def _name_call(call: Collective, number: int | None = None, group: str = "") -> str:
    return say("end", "call", call=call, number=number, group=shorten_middle(group, 32))


def _shorten(error: str) -> str:
    return shorten_middle(" ".join(_SOURCE.sub("", error).split()), _LONGEST).rstrip(".")
