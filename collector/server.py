"""The only file that imports the server, a package installed beside this one. Each function imports the server when
called, so that no training loads it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collector.format.run import Run
    from profiler_server.diagnosis.knobs import Change
    from profiler_server.facts.results import Suggestion

SERVER = "profiler_server"


def find_missing_package() -> str | None:
    """Return the first package that the server's commands need and that is not installed; None if all are there."""
    return next((name for name in (SERVER, "typer", "scipy") if importlib.util.find_spec(name) is None), None)


def diagnose(run: Run, rank: int) -> tuple[str, tuple[Suggestion, ...], str]:
    """Return a rank's verdict, suggestions, and the reason for no suggestions. Raises the errors of `RankRun.table`."""
    from profiler_server.diagnosis.judging import diagnose

    found = diagnose(run, rank)
    return found.sentence, found.suggestions, found.silence


def list_changes(run: Run, rank: int) -> list[Change]:
    """Return the changes of settings that may gain something, the most that each can gain first.

    Raises the errors of `RankRun.table`.
    """
    from profiler_server.diagnosis.judging import diagnose
    from profiler_server.diagnosis.knobs import list_changes
    from profiler_server.diagnosis.measuring import measure_case

    case = measure_case(run, run.rank(rank))
    asked = [each.settings for each in diagnose(run, rank).suggestions]
    return list_changes(case, {name: value for each in reversed(asked) for name, value in each.items()}) if case else []


def format_duration(value_ns: float) -> str:
    from profiler_server.format import format_duration

    return format_duration(value_ns)


def read_least_pairs() -> int:
    """Return the number of pairs of runs that the gate needs for a verdict."""
    from profiler_server.diagnosis.limits.compare import LEAST_RUNS

    return LEAST_RUNS


def check_share(text: str) -> None:
    """Raise UsageError for a slowdown that the gate refuses."""
    from profiler_server.commands.compare import parse_share

    parse_share(text)


def write_undecided(reason: str, junit: Path | None, markdown: Path | None) -> None:
    """Write the reason for the missing verdict to the gate's files. Raises OutputError."""
    from profiler_server.commands.compare import write_documents
    from profiler_server.report.gate import build_undecided

    write_documents(build_undecided(reason), junit, markdown)
