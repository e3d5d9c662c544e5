"""`profiler-server compare`: where the step changed from one run to the other, and the gate over two lists of runs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collector.format.schema.errors import OutputError, RunError, StepscopeError, UsageError
from collector.format.schema.writing import write_output
from profiler_server.commands import BaseDir, find_base_dir, find_run, find_runs, list_runs_below

if TYPE_CHECKING:
    from collector.format.run import Run
    from profiler_server.analysis.compare.comparison import Comparison, Difference
    from profiler_server.analysis.compare.gate import Verdict
    from profiler_server.analysis.compare.run_times import RunTimes

NAME = "compare"
EXAMPLE = "profiler-server compare runs/new --against runs/base --gate --max-slowdown 3%"
MOST_LIKE = 100
RUNS = "A run, by its path or name, or a folder of runs."


def command(
    context: typer.Context,
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help=f"{RUNS} Without --against two: A, then B.")],
    against: Annotated[
        list[str] | None, typer.Option("--against", metavar="RUN…", help=f"The runs to compare with. {RUNS}")
    ] = None,
    base_dir: BaseDir = None,
    rank: Annotated[int | None, typer.Option(metavar="N", min=0, help="Rank; the first by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object; times are ns.")] = False,
    gate: Annotated[
        bool,
        typer.Option(
            "--gate", help="Exit with 1 if the runs are slower by more than identical runs differ, 2 if undecided."
        ),
    ] = False,
    max_slowdown: Annotated[
        str | None,
        typer.Option(
            "--max-slowdown", metavar="SHARE", help="A slowdown that the gate lets pass, such as 3%. By default none."
        ),
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the gate's verdict as JUnit XML.")] = None,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the gate's verdict as Markdown.")] = None,
) -> None:
    """Say where the mean step of B differs from the mean step of A, or whether one list of runs is slower than another."""
    from profiler_server.report.gate import EXIT_CODES, describe_verdict, render_verdict

    base, limit = find_base_dir(base_dir, context), parse_share(max_slowdown or "0%")
    documents: dict[str, Any] = {}
    with tell_documents(junit, markdown):
        if against is None:
            check_pair(runs)
            documents = print_pair(find_run(runs[0], base), find_run(runs[1], base), rank, is_quiet=as_json)
            if not (gate or junit or markdown or max_slowdown):
                if as_json:
                    typer.echo(json.dumps(documents, indent=1))
                return
        # Of two runs the second is judged. With --against, the first runs are judged.
        new, old = ([runs[1]], [runs[0]]) if against is None else (runs, against)
        verdict = judge_words(new, old, base, rank, limit)
    write_documents(verdict, junit, markdown)
    if as_json:
        typer.echo(json.dumps({**documents, "gate": describe_verdict(verdict)}, indent=1))
    else:
        typer.echo(("\n" if against is None else "") + render_verdict(verdict))
    if gate and (code := EXIT_CODES[verdict.kind]):
        raise typer.Exit(code)


def check_pair(words: list[str]) -> None:
    """Raise UsageError unless the words name two runs."""
    if len(words) != 2:
        raise UsageError(f"compare takes two runs, A and B, or RUN… --against RUN…; {len(words)} were given")
    folder = next((word for word in words if list_runs_below(word)), None)
    if folder is not None:
        raise UsageError(
            f"{folder} is a folder of runs. To compare lists, name the new ones first: "
            f"profiler-server compare {words[1]} --against {words[0]} --gate"
        )


@contextlib.contextmanager
def tell_documents(junit: Path | None, markdown: Path | None) -> Iterator[None]:
    """Run a block. If the block raises an error of Stepscope, write it to the files that are not None, so that a CI
    system finds no older file.
    """
    try:
        yield
    except StepscopeError as error:
        from profiler_server.report.gate import build_undecided

        with contextlib.suppress(OutputError):
            write_documents(build_undecided(str(error)), junit, markdown)
        raise


def print_pair(a: Run, b: Run, rank: int | None, *, is_quiet: bool) -> dict[str, Any]:
    """Compare rank `rank` (default: the first) of two runs and return the comparison as plain data. Print it as a table
    unless `is_quiet`.
    """
    from profiler_server.analysis.compare.comparison import compare_ranks
    from profiler_server.diagnosis.outcome import find_outcome
    from profiler_server.report.outcome import describe_outcome

    found, outcome = compare_ranks(a.rank(rank), b.rank(rank)), describe_outcome(find_outcome(a, b))
    if not is_quiet:
        typer.echo(render(found))
        for line in outcome["sentences"] if outcome is not None else ():
            typer.echo(f"Since A: {line}")
    return {**describe(found), "outcome": outcome}


def judge_words(new: list[str], old: list[str], base: Path | None, rank: int | None, limit: float) -> Verdict:
    """Return the gate's verdict on the runs `new` against the runs `old`, given by paths or names. `limit` is the
    slowdown that passes, as a fraction. `rank` None compares the first ranks.

    With one run on each side, similar runs below `base` show how much runs of the program differ.
    """
    from profiler_server.analysis.compare.gate import find_like, judge
    from profiler_server.analysis.compare.run_times import read_times

    judged, before = ([read_times(run, rank) for run in find_runs(words, base)] for words in (new, old))
    like: tuple[RunTimes, ...] = ()
    if len(judged) == len(before) == 1 and base is not None:
        others = read_all(base, rank)
        like = tuple(run for run in find_like(others, before[0]) if run.started_unix_ns != judged[0].started_unix_ns)
    return judge(before, judged, limit, like)


def read_all(base: Path, rank: int | None) -> list[RunTimes]:
    """Return the times of at most `MOST_LIKE` runs below a base directory, nearest folders first. Unreadable runs are
    left out.
    """
    from collector.format.finding import scan_base
    from collector.format.run import open_run
    from profiler_server.analysis.compare.run_times import read_times

    found = []
    for path in scan_base(base).paths[:MOST_LIKE]:
        with contextlib.suppress(RunError):
            found.append(read_times(open_run(path), rank))
    return found


def parse_share(text: str) -> float:
    """Read 3%, 3 or 0.03 as a fraction. Numbers from 1 on count as percentages. Raises UsageError for other texts."""
    number = text.strip().removesuffix("%").strip()
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1000.0:
        raise UsageError(f"--max-slowdown {text!r} is no share; give it as 3% or 0.03")
    return value / 100.0 if "%" in text or value >= 1.0 else value


def write_documents(verdict: Verdict, junit: Path | None, markdown: Path | None) -> None:
    """Write the verdict to the files that are not None: as JUnit XML and as Markdown. Raises OutputError if a file
    cannot be written.
    """
    from profiler_server.report.gate import render_junit, render_markdown

    for path, render_file in ((junit, render_junit), (markdown, render_markdown)):
        if path is None:
            continue
        try:
            write_output(path, render_file(verdict))
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror or error}") from None


def describe(found: Comparison) -> dict[str, Any]:
    """Return the comparison as plain data. Each phase and operator has its meaning, such as slower or noise."""
    from profiler_server.report.schema import pick

    return {
        "step": pick(found.step),
        "phases": pick(found.phases),
        "operators": pick(found.operators),
        "operators_measure": found.measure,
        "operators_left_out": found.moved,
        "median_ns": {"a": found.a_median_ns, "b": found.b_median_ns},
        "steps": {"a": found.a_steps, "b": found.b_steps},
        "total_ns": {"a": found.a_total_ns, "b": found.b_total_ns},
        "loop_per_step_ns": {"a": found.a_loop_ns, "b": found.b_loop_ns},
        "cautions": list(found.cautions),
    }


def render(found: Comparison) -> str:
    """Return the comparison as a table for a terminal."""
    from profiler_server.analysis.compare.comparison import summarize_comparison
    from profiler_server.format import format_duration

    lines = [
        summarize_comparison(found),
        "",
        _row(f"Mean per {found.noun}", "A", "B", "change", "noise ±"),
        _line(found.step),
    ]
    total = (format_duration(found.a_total_ns), format_duration(found.b_total_ns))
    lines.append(_row(found.whole, *total))
    lines += [_line(d) for d in found.phases if d.a_ns or d.b_ns]
    if found.operators:
        lines += ["", _row(f"Operator (self time on the {found.measure})", "A", "B", "change", "noise ±")]
        lines += [_line(d) for d in found.operators]
    lines += [f"{found.moved}."] if found.moved else []
    lines += [f"Caution: {caution}." for caution in found.cautions]
    lines += ["", f"Means per {found.noun}, {found.average}."]
    lines += [
        "* slower or faster by more than noise within these two runs: the 95 % interval of the difference, from means of "
        f"stretches of steps. ? maybe: {found.legend}. Runs of the same program differ too: --gate with several runs each tells more."
    ]
    return "\n".join(lines)


def _line(d: Difference) -> str:
    from profiler_server.format import clean_name, format_difference, format_duration

    change = format_difference(d.shown_ns) + ("*" if d.is_clear else "?" if d.is_unsure else " ")
    name = clean_name(d.name, 40)
    return _row(name, format_duration(d.a_ns), format_duration(d.b_ns), change, format_duration(d.noise_ns))


def _row(name: str, *cells: str) -> str:
    return f"{name:<40}" + "".join(f"{cell:>12}" for cell in cells)
