"""Runs whose steps are drawn by chance, and drawn traces: all figures and outliers of their steps, row by row."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np

from collector.format.run import open_run
from collector.format.steps import select_steps, train_steps
from collector.traces import import_trace
from profiler_server.analysis.steps.interruptions import read_interruptions
from profiler_server.analysis.steps.outliers import explain_outlier, list_outliers
from profiler_server.analysis.steps.step_figures import (
    count_micro_batches,
    find_beyond,
    find_step_span,
    measure_throughput,
    summarize_spread,
    summarize_stability,
    trace_band,
)
from profiler_server.analysis.steps.step_graph import summarize_device_phases, trace_step
from profiler_server.facts.steps import sum_interruptions
from tests.support.drawn_traces import Draw
from tests.support.machines import build_edited
from tests.support.row_edits import Row
from tests.support.runs import MS, RunPlan
from tests.support.showing import show
from tests.support.tables import write_rows
from tests.support.traces import write_trace


def draw_run(path: Path, seed: int) -> Path:
    chance = random.Random(seed)
    count, wide = chance.choice((8, 20, 21, 60)), chance.choice((0, 1, 6))

    def edit(_: int, rows: list[Row]) -> None:
        for row in rows:
            row["forward_ns"] += chance.randint(0, wide) * MS
            if chance.random() < 0.15:
                place = chance.choice(("data_wait_ns", "backward_ns", "tail_ns", "gc_ns"))
                row[place] += chance.choice((2, 20, 200)) * MS
                row["tail_ns"] += row["gc_ns"]
            if chance.random() < 0.1:
                row.update(
                    chance.choice(({"detailed": True}, {"backwards": 2}, {"optimizer_steps": 0}, {"samples": 16}))
                )

    run = build_edited(path, RunPlan(steps=count, operators=False), edit)
    steps = open_run(run).rank().table("steps").to_pylist()
    marks = []
    for number, row in enumerate(chance.sample(steps, 6)):
        name = chance.choice(("torch.save", "validate", "mine"))
        times = {"start_ns": row["start_ns"] + 2 * MS, "duration_ns": chance.choice((1, 20, 200)) * MS}
        common = {"path": name, "thread_id": 1, "process": 1, "failed": False, "training": chance.random() < 0.8}
        marks.append({"id": number, "name": name, **times, **common})
    write_rows(run, "ranges", marks)
    return run


def test_figures_and_outliers_of_drawn_steps(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    lines = []
    for seed in range(12):
        rank = open_run(draw_run(tmp_path / str(seed), seed)).rank()
        steps, held = rank.table("steps"), read_interruptions(rank)
        train, selection = train_steps(steps), select_steps(steps)
        number, length = (np.array(train[name]) for name in ("step", "duration_ns"))
        outliers = list_outliers(steps, limit=5, interruptions=held)
        figures = (count_micro_batches(steps), measure_throughput(steps), find_beyond(selection), find_step_span(rank))
        lines += [f"{seed}: {show(figures)}", show(summarize_spread(steps)), show(summarize_stability(steps))]
        lines += [show(trace_band(number, length)), show(sum_interruptions(held)), show(outliers)]
        lines += [explain_outlier(outlier) for outlier in outliers.shown]
    golden("drawn/steps-of-runs", "\n".join(lines) + "\n")


def test_the_graph_of_each_step_of_drawn_traces(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    lines = []
    for seed in range(1000, 1005):
        draw = Draw(seed)
        draw.has.update(device=True, collectives=True)
        rank = import_trace(write_trace(tmp_path / f"{seed}.json", draw.events()), tmp_path / str(seed)).rank()
        steps = rank.table("steps")
        lines += [show(trace_step(rank, steps, number)) for number in steps["step"].unique().to_pylist()]
        lines.append(show(summarize_device_phases(rank)))
    golden("drawn/step-graphs", "\n".join(lines) + "\n")
