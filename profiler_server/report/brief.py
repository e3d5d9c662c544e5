"""The report of a run in a few lines: what bounds the step, the change to make first, and the gain of this change."""

from __future__ import annotations

import contextlib
import re

from collector.edge import attempt
from collector.format.rank import read_step_rows
from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError, StepscopeError
from collector.format.steps import summarize_steps
from collector.hangs.live import Standing
from profiler_server.analysis.ranks.ending import find_end
from profiler_server.analysis.ranks.ends import Hang
from profiler_server.analysis.steps.requests import summarize_requests
from profiler_server.diagnosis.end_sentences import list_attempt_lines, recall_standstills, say_attempts, spell_reports
from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.request_sentences import say_latency
from profiler_server.facts.results import Diagnosis
from profiler_server.format import format_number_of, say_gain
from profiler_server.report.text import NOTHING_PAYS


def write_brief(run: Run, rank: int | None = None) -> list[str]:
    """Return lines on a rank, by default the first: what bounds it, the first change, its gain, and how the job ended.

    A job that hangs or stands still gets one line. Raises RunError if the rank cannot be judged.
    """
    if not run.ranks:
        raise RunError(f"{run.path} holds no rank yet")
    chosen = run.rank(rank)
    found = _judge(run, chosen.rank)
    if isinstance(find_end(run), (Hang, Standing)):
        return [found.sentence]
    stood = recall_standstills(run.read_rank(each) for each in run.ranks)
    attempts = list_attempt_lines(run)
    lines = [*_say(chosen, found), _say_requests(chosen), stood]
    if found.end and found.limit:
        lines.insert(0, f"{found.end} {found.end_detail}".rstrip())
    if say_attempts(attempts) not in lines[0]:
        lines.append(say_attempts(attempts))
    return list(dict.fromkeys(line for line in (*lines, *spell_reports(attempts)) if line))


def _say_requests(rank: RankRun) -> str:
    found = attempt(lambda: summarize_requests(rank))
    return f"{format_number_of(found.count, 'request')}: {say_latency(found)}." if found is not None else ""


def _judge(run: Run, rank: int) -> Diagnosis:
    failures: list[Exception] = []
    found = attempt(lambda: diagnose(run, rank), failures.append)
    if found is None:
        (error,) = failures
        reason = str(error) if isinstance(error, StepscopeError) else f"{type(error).__name__}: {error}"
        raise RunError(f"{run.path} cannot be judged: {reason}")
    return found


def _say(rank: RankRun, found: Diagnosis) -> list[str]:
    first = next((entry for entry in found.suggestions if entry.severity != "info"), None)
    looks = [f"Worth a look: {entry.measured}" for entry in found.suggestions if entry.is_look]
    if first is None:
        if not found.limit:
            return [found.sentence, *looks]
        nothing = found.sentence.partition(found.limit)[2].strip() or found.silence or NOTHING_PAYS
        return [found.limit, *(looks or [nothing])]
    change = f"{first.fix} ({first.title})" if first.fix else first.title
    is_known = first.predicted_step_ns is not None or first.least_step_ns is not None
    gain = [say_gain(first, measure_step(rank))] if is_known else []
    names_line = _LINE.search(first.measured) is not None and not _LINE.search(change)
    why = [f"Why: {first.measured}"] if names_line or not is_known else []
    return [found.limit or found.sentence, f"To change first: {change}", *gain, *why, *looks]


_LINE = re.compile(r"\.py:\d")
"""A line of the user's code, which the change itself does not always name."""


def measure_step(rank: RankRun) -> float | None:
    with contextlib.suppress(RunError):
        times = summarize_steps(read_step_rows(rank).steps).duration_ns
        return None if times is None else times.mean
    return None
