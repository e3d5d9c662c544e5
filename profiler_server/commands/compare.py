"""`profiler-server compare`: where the step changed from one run to the other."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from profiler_server.commands import BaseDir, find_base_dir, find_run

if TYPE_CHECKING:
    from profiler_server.analysis.compare.comparison import Comparison, Difference

NAME = "compare"
EXAMPLE = "profiler-server compare runs/before runs/after --gate"
GATE_FAILED = 1


def command(
    context: typer.Context,
    a: Annotated[str, typer.Argument(metavar="A", help="The run to compare with: its path, or its name.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The run to judge: its path, or its name.")],
    base_dir: BaseDir = None,
    rank: Annotated[int | None, typer.Option(metavar="N", min=0, help="Rank; the first by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object; times are ns.")] = False,
    gate: Annotated[bool, typer.Option("--gate", help="Exit with 1 if B's step is longer by more than noise.")] = False,
) -> None:
    """Say where the mean step of B differs from A's, and whether that is more than noise."""
    from profiler_server.analysis.compare.comparison import compare_ranks

    base = find_base_dir(base_dir, context)
    found = compare_ranks(find_run(a, base).rank(rank), find_run(b, base).rank(rank))
    typer.echo(json.dumps(describe(found), indent=1) if as_json else render(found))
    if gate and found.is_slower:
        raise typer.Exit(GATE_FAILED)


def describe(found: Comparison) -> dict[str, Any]:
    """Return the comparison as plain data, the judgement of each line included."""

    def line(d: Difference) -> dict[str, Any]:
        return {**dataclasses.asdict(d), "change_ns": d.change_ns, "is_clear": d.is_clear}

    return {
        "step": line(found.step),
        "phases": [line(d) for d in found.phases],
        "operators": [line(d) for d in found.operators],
        "operators_measure": found.measure,
        "steps": {"a": found.a_steps, "b": found.b_steps},
        "total_ns": {"a": found.a_total_ns, "b": found.b_total_ns},
        "loop_per_step_ns": {"a": found.a_loop_ns, "b": found.b_loop_ns},
        "cautions": list(found.cautions),
    }


def render(found: Comparison) -> str:
    """Return the comparison as a table for a terminal."""
    from profiler_server.analysis.compare.comparison import summarize_comparison
    from profiler_server.format import format_duration

    lines = [summarize_comparison(found), "", _row("Mean per step", "A", "B", "change", "noise ±"), _line(found.step)]
    total = (format_duration(found.a_total_ns), format_duration(found.b_total_ns))
    lines.append(_row("All training steps together", *total))
    lines += [_line(d) for d in found.phases if d.a_ns or d.b_ns]
    if found.operators:
        lines += ["", _row(f"Operator (self time on the {found.measure})", "A", "B", "change", "noise ±")]
        lines += [_line(d) for d in found.operators]
    lines += [f"Caution: {caution}." for caution in found.cautions]
    lines += ["", f"Means per {found.noun}, {found.average}."]
    lines += ["* more than noise: beyond the 95 % interval of the difference, from means of stretches of steps."]
    return "\n".join(lines)


def _line(d: Difference) -> str:
    from profiler_server.format import format_duration, shorten_middle

    # A change below a ten-thousandth of the part is rounding: 0 reads better than a picosecond.
    shown_ns = d.change_ns if abs(d.change_ns) > 1e-4 * max(d.a_ns, d.b_ns) else 0.0
    change = f"{'+' if shown_ns > 0 else ''}{format_duration(shown_ns)}{'*' if d.is_clear else ' '}"
    name = shorten_middle(d.name, 40)
    return _row(name, format_duration(d.a_ns), format_duration(d.b_ns), change, format_duration(d.noise_ns))


def _row(name: str, *cells: str) -> str:
    return f"{name:<40}" + "".join(f"{cell:>12}" for cell in cells)
