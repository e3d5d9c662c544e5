"""`profiler-server report`: what the pages say, as text or JSON."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from collector.schema.errors import RunError
from profiler_server.commands import BaseDir, RunName, find_base_dir, find_run

NAME = "report"


def command(
    context: typer.Context,
    run: RunName,
    base_dir: BaseDir = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object; times are ns, shares fractions.")
    ] = False,
) -> None:
    """Say what a run is bound by, its figures and what to change."""
    from profiler_server.report import build_report, is_empty, render_text

    opened = find_run(run, find_base_dir(base_dir, context))
    report = build_report(opened)
    if is_empty(report) and report["warnings"]:
        raise RunError(f"nothing of {opened.path} can be reported: {report['warnings'][0]}")
    typer.echo(json.dumps(report, indent=1, ensure_ascii=False) if as_json else render_text(report, opened), nl=as_json)
