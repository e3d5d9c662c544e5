"""`stepscope top`: a run that records, on the terminal: its phases, queues and advice, until it ends.

It reads what the recorder wrote to the run, so it costs the training nothing; it runs at a low priority.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collector.format.schema import layout
from collector.format.schema.errors import RunError, read_or
from profiler_server.commands import BaseDir, RunName, find_base_dir, find_run

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rich.console import Console, RenderableType
    from rich.text import Text

    from collector.format.recent import RecentSteps
    from collector.format.run import RankRun, Run

NAME = "top"
EXAMPLE = "stepscope top runs/digits"
REFRESH_S = 1.0
JUDGED_S = 30.0
"""Time between two judgements of a run that records: each reads all of its steps."""
SETTLE_S = 15.0
"""Time for which the recorder may still make the tables of a training whose process has ended."""
ENDING = "ending"
WAIT_S = 60.0
"""Time to wait for the first data of a training that begins."""
QUEUE_ROWS = 50
"""The number of last requests whose queue depths are averaged."""
_NICE = 10
_LABEL = 18
_FIGURES = 18
"""Columns of a phase's time and share."""
_LEAST_BAR = 6
_NOT_YET = "Advice follows once the first steps are judged."


@dataclass(frozen=True)
class Queue:
    """The depth of a queue in its last requests: the newest, the mean, and the share of requests that found it empty."""

    name: str
    depth: int
    capacity: int
    mean: float
    empty_frac: float


@dataclass(frozen=True)
class Snapshot:
    """What is known of a rank now. `recent` is None before the first steps; `stands_still` is "" while it gets on."""

    state: str
    recent: RecentSteps | None
    queues: tuple[Queue, ...]
    stands_still: str


@dataclass
class Advice:
    """Lines on what bounds the run and what to change, judged in the background while the run records."""

    lines: list[str] = field(default_factory=list)
    judged_s: float = float("-inf")
    work: Future[list[str]] | None = None


def command(
    context: typer.Context,
    run: RunName,
    base_dir: BaseDir = None,
    rank: Annotated[int | None, typer.Option(metavar="N", min=0, help="Rank; the first by default.")] = None,
) -> None:
    """Watch a run that records: phases of the last steps, queues, advice. Ends with the run; Ctrl-C ends it before."""
    opened = find_run(run, find_base_dir(base_dir, context))
    with contextlib.suppress(KeyboardInterrupt):
        _follow(opened, wait_for_rank(opened, rank, sys.stdout.isatty()))


def wait_for_rank(run: Run, rank: int | None, is_terminal: bool) -> RankRun:
    """Return a rank once it has written its manifest: in the first seconds of a training it has not. Raises RunError
    after `WAIT_S`; at once if nobody watches.
    """
    until_s = time.monotonic() + (WAIT_S if is_terminal else 0.0)
    while not any(layout.rank_file(run.path, number).exists() for number in (run.ranks if rank is None else (rank,))):
        if time.monotonic() > until_s:
            raise RunError(f"{run.path} has no data of {'any rank' if rank is None else f'rank {rank}'} yet; try again")
        time.sleep(REFRESH_S)
    return run.rank(rank)


def _follow(run: Run, rank: RankRun) -> None:
    from rich.console import Console

    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal over ssh can show µ
    console = Console()
    if sys.stdout.isatty() and rank.state == "recording":
        with contextlib.suppress(OSError):
            os.nice(_NICE)
        watch(run.path, rank.rank, console)
    else:
        console.print(draw(run, rank, read_snapshot(run, rank), judge(run, rank.rank), console))


def watch(path: Path, number: int, console: Console) -> None:
    """Redraw a rank each second until its run ends, and then leave the last picture with the verdict.

    Raises RunError if the run is removed.
    """
    from rich.live import Live

    from collector.format.run import Run

    advice, gone_s = Advice(), float("inf")
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            run = Run(path)  # a Run keeps what it has read
            rank = run.rank(number)
            seen = read_snapshot(run, rank)
            gone_s = min(gone_s, time.monotonic()) if seen.state == ENDING else float("inf")
            is_over = seen.state not in ("recording", ENDING) or time.monotonic() - gone_s > SETTLE_S
            if is_over:
                advice.lines = judge(run, number)
                seen = replace(seen, state=rank.state)
            elif seen.recent is not None:
                renew(advice, run, rank)
            live.update(draw(run, rank, seen, advice.lines or [_NOT_YET], console), refresh=True)
            if is_over:
                return
            time.sleep(REFRESH_S)


def renew(advice: Advice, run: Run, rank: RankRun) -> None:
    """Take over lines that are judged, and have them judged again after `JUDGED_S`."""
    from profiler_server.derive.derived import AT_ONCE_SLICES, count_slices
    from profiler_server.derive.store import find_store

    if advice.work is not None and advice.work.done():
        advice.lines, advice.judged_s, advice.work = advice.work.result(), time.monotonic(), None
    elif advice.work is None and time.monotonic() - advice.judged_s > JUDGED_S:
        if count_slices(rank) > AT_ONCE_SLICES:
            advice.lines = ["This run is too large to be judged while it records; its advice follows at its end."]
            return
        advice.work = find_store().background.start(("top", run.path), lambda: judge(run, rank.rank))


def judge(run: Run, rank: int) -> list[str]:
    from profiler_server.report.brief import write_brief

    try:
        return write_brief(run, rank)
    except RunError as error:
        return [str(error)]


def read_snapshot(run: Run, rank: RankRun) -> Snapshot:
    """Read the present figures of a rank. Tables that cannot be read are left out. Raises RunError if the run is gone."""
    from collector.format.recent import read_recent
    from profiler_server.store.headline import say_stand

    state = read_state(rank)
    recent, queues = read_or(None, read_recent, rank), read_or((), read_queues, rank)
    return Snapshot(state, recent, queues, say_stand(run, run.ranks) if state == "recording" else "")


def read_state(rank: RankRun) -> str:
    """Return the state of a rank; `ENDING` while its process is gone and its tables may still be made."""
    is_ending = rank.state == "crashed" and rank.manifest.ended_unix_ns is None
    return ENDING if is_ending else rank.state


def read_queues(rank: RankRun) -> tuple[Queue, ...]:
    from collector.format.parts import read_last_rows

    columns = ("loader", "queue", "depth", "capacity")
    found: dict[str, list[tuple[int, int]]] = {}
    for row in read_last_rows(rank.folder, "queues", columns, 4 * QUEUE_ROWS).to_pylist():
        name = str(row["queue"]) + (f" {row['loader']}" if (row["loader"] or 0) > 0 else "")
        found.setdefault(name, []).append((row["depth"], row["capacity"]))
    return tuple(_sum_up(name, rows[-QUEUE_ROWS:]) for name, rows in found.items())


def _sum_up(name: str, rows: list[tuple[int, int]]) -> Queue:
    depths = [depth for depth, _ in rows]
    empty_frac = sum(depth == 0 for depth in depths) / len(depths)
    return Queue(name, *rows[-1], sum(depths) / len(depths), empty_frac)


def draw(run: Run, rank: RankRun, seen: Snapshot, advice: list[str], console: Console) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    width = min(console.width, 100)
    lines = [_name(run, rank, seen), *_draw_steps(seen, width, console.options.ascii_only)]
    if seen.stands_still:
        lines.append(Text(seen.stands_still, "bold red"))
    lines += [Text(), *(Text(_clean(line), "bold" if at == 0 else "") for at, line in enumerate(advice))]
    return Group(*lines)


def _clean(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _name(run: Run, rank: RankRun, seen: Snapshot) -> Text:
    from rich.text import Text

    from profiler_server.format import clean_name

    name = run.manifest.name or run.path.name
    steps = f", step {seen.recent.last:,}" if seen.recent is not None else ""
    ranks = f", rank {rank.rank} of {run.manifest.world_size}" if run.manifest.world_size > 1 else ""
    return Text.assemble((clean_name(name, 60), "bold"), f"  {seen.state}{steps}{ranks}")


def _draw_steps(seen: Snapshot, width: int, ascii_only: bool) -> Iterator[Text]:
    from rich.text import Text

    from collector.format.phases import PHASES
    from profiler_server.format import clean_name, format_duration, format_share

    recent = seen.recent
    if recent is None or not recent.step_ns:
        yield Text("No steady step yet.")
        return
    rate = 1e9 / (recent.step_ns + recent.between_ns)
    yield Text(f"Step {format_duration(recent.step_ns)}, {rate:.3g} steps/s  (mean of the last steps)")
    longest_ns = max(recent.phases_ns.values()) or 1.0
    for phase in PHASES:
        spent_ns = recent.phases_ns[phase.name]
        if spent_ns > 0:
            figures = f"{format_duration(spent_ns):>9}{format_share(spent_ns / recent.step_ns):>8}"
            yield _draw_bar(phase.label, spent_ns / longest_ns, figures, phase.color, width, ascii_only)
    for queue in seen.queues:
        empty = f"{queue.depth} of {queue.capacity}, empty {format_share(queue.empty_frac)}"
        yield _draw_bar(
            clean_name(queue.name, 40), queue.mean / max(queue.capacity, 1), empty, "data", width, ascii_only
        )


def _draw_bar(label: str, frac: float, figures: str, category: str, width: int, ascii_only: bool) -> Text:
    """Return a line of a label, a bar and figures. A narrow terminal gets a shorter label, or no bar."""
    from rich.text import Text

    from collector.format.phases import PALETTE

    label_width = min(_LABEL, max(width - max(_FIGURES, len(figures)) - _LEAST_BAR - 2, 8))
    room = width - label_width - max(_FIGURES, len(figures)) - 2
    filled = round(min(max(frac, 0.0), 1.0) * room) if room >= _LEAST_BAR else 0
    bar = ("#" if ascii_only else "█") * filled + " " * max(room - filled, 0) if room >= _LEAST_BAR else ""
    short = label.partition(" /")[0][:label_width]
    return Text.assemble(f"{short:<{label_width}} ", (bar, PALETTE[category][1]), f" {figures:>{_FIGURES}}")
