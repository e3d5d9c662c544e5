"""Rows of tables as something that went wrong leaves them: stalls, epochs, compilations, busy processors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from collector.format import parts
from collector.format.schema import layout
from tests.support.runs import HEALTHY_STEP_MS, MS

Row = dict[str, Any]


def write_rows(folder: Path, table: str, rows: list[Row]) -> None:
    parts.write_table(parts.build_table_from_rows(table, rows), layout.table_file(folder, table))


def lay_end_to_end(steps: list[Row]) -> None:
    """Make each step as long as its phases and start where the one before it ended."""
    at = steps[0]["start_ns"]
    for step in steps:
        step["start_ns"] = at
        step["duration_ns"] = sum(value for name, value in step.items() if name in _PHASE_COLUMNS)
        at += step["duration_ns"]


_PHASE_COLUMNS = {f"{name}_ns" for name in HEALTHY_STEP_MS}


def compute_all(stages: list[Row]) -> None:
    """All of the work is on a processor."""
    for row in stages:
        if row["kind"] == "work":
            row["cpu_ns"] = row["duration_ns"]


def name_transforms(stages: list[Row]) -> None:
    """Give every transform row a name, and split off a tenth of it as another one."""
    compute_all(stages)
    added = []
    for row in stages:
        if row["stage"] == "transform":
            small = row["duration_ns"] // 10
            added.append({**row, "detail": "Normalize", "duration_ns": small, "cpu_ns": small})
            row |= {"detail": "Rotate", "duration_ns": row["duration_ns"] - small, "cpu_ns": row["cpu_ns"] - small}
    stages += added


def cpu_cores(process: float, system: float, count: int = 40) -> list[Row]:
    """Return samples of processor use over the first seconds of a run."""
    return [
        {"start_ns": 1_000 * MS + n * 100 * MS, "source": source, "metric": "cpu_cores", "value": value}
        for n in range(count)
        for source, value in (("process", process), ("system", system))
    ]


def process_memory(*levels_bytes: float, count: int = 60) -> list[Row]:
    """Return samples of the process's memory over the first seconds of a run, which go through the levels in turn."""
    picked = [levels_bytes[n * len(levels_bytes) // count] + n for n in range(count)]
    return [
        {"start_ns": 1_000 * MS + n * 100 * MS, "source": "process", "metric": "memory_bytes", "value": value}
        for n, value in enumerate(picked)
    ]


def compiled(*events: tuple[str, int, str | None]) -> list[Row]:
    """Return what torch.compile did: kind, ms and reason of each, in one function."""
    return [
        {
            "step": n,
            "kind": kind,
            "start_ns": n * MS,
            "duration_ns": ms * MS,
            "name": "forward (net.py:7)",
            "reason": why,
        }
        for n, (kind, ms, why) in enumerate(events, 1)
    ]


def stall(every: int, phase: str, by_ms: float) -> Callable[[list[Row]], None]:
    """Return an edit that makes every n-th step longer in one phase."""

    def edit(steps: list[Row]) -> None:
        for step in steps[every - 1 :: every]:
            step[f"{phase}_ns"] += int(by_ms * MS)

    return edit


def begin_epochs(every: int, wait_ms: float, start_ms: float = 0.0) -> Callable[[list[Row]], None]:
    """Return an edit that begins an epoch every n steps, with a wait for its first batch."""

    def edit(steps: list[Row]) -> None:
        for at, step in enumerate(steps):
            step["epoch"], step["batch"] = at // every + 1, at % every
            if step["batch"] == 0:
                step["data_wait_ns"] += int(wait_ms * MS)
                step["loader_start_ns"] = int(start_ms * MS)

    return edit


def rest_between_epochs(every: int, rest_ms: float) -> Callable[[list[Row]], None]:
    """Return an edit that begins an epoch every n steps, with a rest before each but the first."""

    def edit(steps: list[Row]) -> None:
        begin_epochs(every, wait_ms=0.0)(steps)
        for at in reversed(range(every, len(steps), every)):
            idle = dict.fromkeys(_PHASE_COLUMNS, 0) | {"gap_ns": int(rest_ms * MS)}
            steps.insert(
                at, {**steps[at - 1], **idle, "kind": "rest", "batch": None, "samples": None, "detailed": False}
            )

    return edit


def act(steps: list[Row]) -> None:
    """Each step calls the model without gradients first, and spends half a step on what it says."""
    for step in steps:
        step |= {"forwards": 2, "no_grad_forwards": 1, "gap_ns": 60 * MS}


def answer_at_once(steps: list[Row]) -> None:
    """The same, but what the model says is answered within 3 % of the step."""
    act(steps)
    for step in steps:
        step["gap_ns"] = 2 * MS


def collect_garbage(steps: list[Row]) -> None:
    for step in steps[::2]:
        step["forward_ns"] += 20 * MS
        step["gc_ns"] = 20 * MS


def slow_down(steps: list[Row]) -> None:
    """Each step takes half a percent of the first longer than the one before it."""
    for at, step in enumerate(steps):
        step["backward_ns"] += int(0.005 * at * 64 * MS)


def shift(at: int, by_ms: float, phase: str = "data_wait") -> Callable[[list[Row]], None]:
    """From one step on a phase takes longer."""

    def edit(steps: list[Row]) -> None:
        for step in steps[at:]:
            step[f"{phase}_ns"] += int(by_ms * MS)

    return edit


def begin_slowly(steps: list[Row]) -> None:
    for step in steps[:3]:
        step["forward_ns"] += 6_000 * MS


def evaluate(steps: list[Row]) -> None:
    """Half as many evaluation batches as steps, at the end."""
    rows = [
        {**step, "kind": "eval", "index": len(steps) + at, "batch": at, "loader": 1}
        for at, step in enumerate(steps[: len(steps) // 2])
    ]
    steps += rows


def evaluate_in_passes(steps: list[Row], passes: int) -> None:
    """So many passes of evaluation, each of ten batches that are three times as long as a step, spread over the run."""
    every = len(steps) // passes
    batches = [
        {**step, "kind": "eval", "loader": 1, "forward_ns": 3 * step["forward_ns"] + 120 * MS} for step in steps[:10]
    ]
    for at in reversed(range(passes)):
        place = (at + 1) * every
        steps[place:place] = [{**row, "step": steps[place - 1]["step"], "batch": n} for n, row in enumerate(batches)]


def fetch_in_groups(steps: list[Row]) -> None:
    """Every fifth step fetches the batches of five."""
    for at, step in enumerate(steps):
        leads = at % 5 == 0
        step["fetches"] = 5 if leads else 0
        step["data_wait_ns"] *= 5 if leads else 0


def roll_out(steps: list[Row]) -> None:
    """Half as many calls of the model without gradients as steps, fed by no loader."""
    evaluate(steps)
    for step in steps:
        if step["kind"] == "eval":
            step |= {"loader": None, "epoch": None, "batch": None, "fetches": 0, "data_wait_ns": 0, "gap_ns": 100 * MS}
    lay_end_to_end(steps)


def send_slowly(stages: list[Row]) -> None:
    for row in stages:
        if row["stage"] == "collate":
            row["stage"] = "send"


def alternate(stages: list[Row]) -> None:
    """Every other batch takes ten times as long."""
    for row in stages:
        if row["kind"] == "work" and row["batch"] % 2:
            row["duration_ns"] *= 10
            row["cpu_ns"] *= 10


def forget_all(rows: list[Row]) -> None:
    rows.clear()


def vary_samples(stages: list[Row]) -> None:
    """One batch in eight takes twenty times the others."""
    for row in stages:
        if row["kind"] == "work":
            factor = 18 if row["batch"] % 8 == 3 else 1
            row["duration_ns"] *= factor
            row["cpu_ns"] = 0


def queued(process: float, system: float, wait_frac: float) -> list[Row]:
    """Return samples of a process that runs on so many cores and waits for one for a share of its time."""
    rows = cpu_cores(process, system, count=200)
    waits = [
        {"start_ns": row["start_ns"], "source": "process", "metric": "run_queue_frac", "value": wait_frac}
        for row in rows[::2]
    ]
    return [*rows, *waits]
