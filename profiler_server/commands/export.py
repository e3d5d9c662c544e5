"""`stepscope export`: the timeline as a trace file, or the sampled stacks as a flame graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collector.format.schema.errors import UsageError
from profiler_server.commands import BaseDir, RunName, find_base_dir, find_run
from profiler_server.format import format_number_of

NAME = "export"
EXAMPLE = "stepscope export runs/digits --output digits.json.gz --steps 10-12"


def command(
    context: typer.Context,
    run: RunName,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="File to write, .json or .json.gz; named after the run by default."
        ),
    ] = None,
    ranks: Annotated[str | None, typer.Option(metavar="RANKS", help="Ranks, such as 0,2-5; all by default.")] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="WORKERS", help="DataLoader workers, such as 0,2-3; all by default.")
    ] = None,
    steps: Annotated[str | None, typer.Option(metavar="STEPS", help="Steps, such as 10-12; all by default.")] = None,
    detail: Annotated[str, typer.Option(metavar="LEVEL", help="How much to write: steps, device or full.")] = "full",
    one_clock: Annotated[
        bool,
        typer.Option(
            "--one-clock",
            help="Put the ranks on the clock of the first, aligned by their collectives, each as one process.",
        ),
    ] = False,
    stacks: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the sampled Python stacks instead, .speedscope.json or .pb.gz (pprof); --ranks chooses ranks.",
        ),
    ] = None,
    base_dir: BaseDir = None,
) -> None:
    """Write a trace that Perfetto and chrome://tracing load, or the sampled stacks for speedscope and pprof."""
    from profiler_server.timeline.export import Part, export_timeline

    opened = find_run(run, find_base_dir(base_dir, context))
    if stacks is not None:
        if output or workers or steps or one_clock or detail != "full":
            raise UsageError("--stacks writes the samples of all steady steps; beside it only --ranks may be given")
        from profiler_server.timeline.export_stacks import export_stacks

        typer.echo(f"Wrote {format_number_of(export_stacks(opened, stacks, ranks), 'sample')} to {stacks}")
        return
    part = Part(ranks, steps, detail, workers=workers, one_clock=one_clock)  # type: ignore[arg-type]
    report = export_timeline(opened, output, part)
    typer.echo(
        f"Wrote {format_number_of(report.slices, 'slice')} and {format_number_of(report.flows, 'flow')} to {report.path}"
    )
    for sentence in report.left_out:
        typer.echo(sentence, err=True)
