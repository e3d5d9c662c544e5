"""`stepscope compare`: where the step changed from one run to others, and the gate over two lists of runs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collector.format.schema.errors import OutputError, RunError, StepscopeError, UsageError, read_or
from collector.format.schema.writing import write_output
from profiler_server.commands import BaseDir, find_base_dir, find_run, find_runs, list_runs_below

if TYPE_CHECKING:
    from collector.format.run import Run
    from profiler_server.analysis.compare.comparison import Comparison, Difference, LineShare
    from profiler_server.analysis.compare.gate import Verdict
    from profiler_server.analysis.compare.run_times import RunTimes

NAME = "compare"
EXAMPLE = "stepscope compare runs/new --against runs/base --gate --max-slowdown 3%"
MOST_LIKE = 100
RUNS = "A run, by its path or name, or a folder of runs."


def command(
    context: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN…", help=f"{RUNS} Without --against: two to eight runs, the baseline first."),
    ],
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
    """Say where the mean step of other runs differs from that of the first, or whether one list is slower than another."""
    from profiler_server.report.gate import EXIT_CODES, describe_verdict, render_verdict

    base, limit = find_base_dir(base_dir, context), parse_share(max_slowdown or "0%")
    documents: dict[str, Any] = {}
    with tell_documents(junit, markdown):
        if against is None:
            check_words(runs)
            if len(runs) > 2:
                refuse_gate(len(runs), gate or junit or markdown or max_slowdown)
                print_several([find_run(word, base) for word in runs], rank, as_json)
                return
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


def check_words(words: list[str]) -> None:
    from profiler_server.analysis.compare.several import MOST_COMPARED

    folder = next((word for word in words if list_runs_below(word)), None)
    if not 2 <= len(words) <= MOST_COMPARED or (folder is not None and len(words) > 2):
        what = f"{folder} is a folder of runs" if folder is not None else f"{len(words)} were given"
        raise UsageError(f"compare takes 2 to {MOST_COMPARED} runs, the baseline first, or RUN… --against RUN…; {what}")
    if folder is not None:
        raise UsageError(
            f"{folder} is a folder of runs. To compare lists, name the new ones first: "
            f"stepscope compare {words[1]} --against {words[0]} --gate"
        )


def refuse_gate(count: int, asked: object) -> None:
    if asked:
        raise UsageError(
            f"the gate judges new runs against old ones; {count} runs were given without --against, "
            "so write: stepscope compare NEW… --against OLD… --gate"
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
    from profiler_server.diagnosis.line_shares import compare_lines
    from profiler_server.diagnosis.outcome import find_outcome
    from profiler_server.report.outcome import describe_outcome
    from profiler_server.report.schema import spell_out

    found, outcome = compare_ranks(a.rank(rank), b.rank(rank)), describe_outcome(find_outcome(a, b))
    lines = read_or((), compare_lines, a, b, rank)
    if not is_quiet:
        typer.echo(render(found, lines))
        for line in outcome["sentences"] if outcome is not None else ():
            typer.echo(f"Since A: {line}")
    return {**describe(found), "lines": spell_out(lines), "outcome": outcome}


def print_several(runs: list[Run], rank: int | None, as_json: bool) -> None:
    from profiler_server.analysis.compare.several import compare_several

    found = compare_several(runs[0].rank(rank), [run.rank(rank) for run in runs[1:]])
    names = [run.path.absolute().name for run in runs]
    if as_json:
        described = [{"run": name, **describe(each)} for name, each in zip(names[1:], found, strict=True)]
        typer.echo(json.dumps({"baseline": names[0], "runs": described}, indent=1))
    else:
        typer.echo(render_several(names, found))


def render_several(names: list[str], found: Sequence[Comparison]) -> str:
    """Return the comparisons with one baseline as a table for a terminal. `names` begins with the baseline's."""
    from profiler_server.analysis.compare.several import list_operators, list_phases
    from profiler_server.format import clean_name, format_duration

    letters = [chr(ord("A") + at) for at in range(len(names))]
    lines = [f"{letter}  {clean_name(name)}" for letter, name in zip(letters, names, strict=True)]
    noun = found[0].noun
    lines[0] += "  (baseline)"
    lines += ["", _cells(f"Mean per {noun}", letters)]
    means = [format_duration(each.step.b_ns) if each.b_steps else "none" for each in found]
    lines += [_cells(f"Whole {noun}", [format_duration(found[0].step.a_ns), *means])]
    lines += [_cells("  change", ["", *(_mark(each.step if each.b_steps else None) for each in found)])]
    for title, rows in (("Phase", list_phases(found)), ("Operator", list_operators(found))):
        lines += ["", _cells(f"{title}, change against A", letters)] if rows else []
        lines += [
            _cells(row.name, [format_duration(row.base_ns), *(_mark(cell) for cell in row.cells)]) for row in rows
        ]
    lines += [""]
    lines += [
        f"Caution, {letter}: {caution}."
        for letter, each in zip(letters[1:], found, strict=True)
        for caution in each.cautions
    ]
    return "\n".join(
        [
            *lines,
            f"Means per {noun}, {found[0].average}. * slower or faster by more than noise within the two runs, ? maybe: "
            f"beyond it, but chance may do that among so many changes (correction by Holm over all runs). - no {noun}s, or "
            "not among the operators that changed most.",
        ]
    )


def _mark(part: Difference | None) -> str:
    from profiler_server.format import format_difference

    if part is None:
        return "- "
    return format_difference(part.shown_ns) + ("*" if part.is_clear else "?" if part.is_unsure else " ")


def _cells(name: str, cells: Sequence[str]) -> str:
    from profiler_server.format import clean_name

    return f"{clean_name(name, 28):<28}" + "".join(f"{cell:>12}" for cell in cells)


def judge_words(new: list[str], old: list[str], base: Path | None, rank: int | None, limit: float) -> Verdict:
    """Return the gate's verdict on the runs `new` against the runs `old`, given by paths or names. `limit` is the
    slowdown that passes, as a fraction. `rank` None compares the first ranks.

    With one run on each side, similar runs below `base` show how much runs of the program differ.
    """
    from profiler_server.analysis.compare.gate import add_lines, find_like, judge
    from profiler_server.analysis.compare.run_times import read_times
    from profiler_server.diagnosis.line_shares import compare_sides

    new_runs, old_runs = (find_runs(words, base) for words in (new, old))
    judged, before = ([read_times(run, rank) for run in runs] for runs in (new_runs, old_runs))
    like: tuple[RunTimes, ...] = ()
    if len(judged) == len(before) == 1 and base is not None:
        others = read_all(base, rank)
        like = tuple(run for run in find_like(others, before[0]) if run.started_unix_ns != judged[0].started_unix_ns)
    verdict = judge(before, judged, limit, like)
    is_changed = verdict.kind in ("slower", "faster")
    return add_lines(verdict, read_or((), compare_sides, old_runs, new_runs, rank)) if is_changed else verdict


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


def render(found: Comparison, changed: Sequence[LineShare] = ()) -> str:
    """Return the comparison as a table for a terminal. `changed` are the lines whose time changed."""
    from profiler_server.analysis.compare.comparison import summarize_comparison
    from profiler_server.format import clean_name, format_duration

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
    if changed:
        lines += ["", _row("Line of yours (sampled)", "A", "B", "change", "noise ±")]
    for each in changed:
        lines += [_line(each.part), f"  {clean_name(each.a_place or '-')} in A, {clean_name(each.b_place or '-')} in B"]
    lines += [f"Caution: {caution}." for caution in found.cautions]
    lines += ["", f"Means per {found.noun}, {found.average}."]
    lines += [
        "* slower or faster by more than noise within these two runs: the 95 % interval of the difference, from means of "
        f"stretches of steps. ? maybe: {found.legend}. Runs of the same program differ too: --gate with several runs each tells more."
    ]
    return "\n".join(lines)


def _line(d: Difference) -> str:
    from profiler_server.format import clean_name, format_duration

    name = clean_name(d.name, 40)
    return _row(name, format_duration(d.a_ns), format_duration(d.b_ns), _mark(d), format_duration(d.noise_ns))


def _row(name: str, *cells: str) -> str:
    return f"{name:<40}" + "".join(f"{cell:>12}" for cell in cells)
