"""What a run shows of itself where it is the value of a line in Python: one line of text, or a small table of HTML."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from collector.format.schema.errors import StepscopeError
from collector.format.schema.wording import format_number_of, format_ranks

if TYPE_CHECKING:
    from collector.format.run import RankRun, Run


def describe_run(run: Run) -> str:
    """Return name, state, ranks and steps; for a run that cannot be read, why."""
    try:
        shown = _list_facts(run)
    except (StepscopeError, OSError) as error:
        return f"Run({str(run.path)!r}: {error})"
    return f"Run({shown['Name']!r}, {', '.join(list(shown.values())[1:4])})"


def render_run(run: Run) -> str:
    """Return the same as a table for a notebook, every text of it escaped."""
    try:
        shown = _list_facts(run)
    except (StepscopeError, OSError):
        return f"<p>{html.escape(describe_run(run))}</p>"
    rows = "".join(f"<tr><th>{key}</th><td>{html.escape(value)}</td></tr>" for key, value in shown.items())
    return f"<table>{rows}</table>"


def describe_rank(rank: RankRun) -> str:
    """Return number, state and steps of a rank; for one that cannot be read, why."""
    try:
        return f"RankRun({rank.rank}, {rank.state}, {_count_steps(rank)})"
    except (StepscopeError, OSError) as error:
        return f"RankRun({rank.rank}: {error})"


def _list_facts(run: Run) -> dict[str, str]:
    manifest = run.manifest
    state = f"{run.state}, recovered" if run.is_recovered else run.state
    return {
        "Name": manifest.name or run.path.name,
        "State": state,
        "Ranks": format_ranks(len(run.ranks), manifest.world_size),
        "Steps": _count_steps(run.rank()) if run.ranks else "no steps",
        "Host": manifest.host,
        "Path": str(run.path),
    }


def _count_steps(rank: RankRun) -> str:
    try:
        return format_number_of(rank.count_steps(), "step")
    except StepscopeError:
        return "no steps"
