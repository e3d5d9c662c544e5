"""The maps of what each rank held and computed."""

from __future__ import annotations

from pathlib import Path

from collector.format import parts
from collector.format.run import open_run
from collector.format.schema import layout
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.pages.ranks.charts import build_work_maps
from tests.support.row_edits import process_memory
from tests.support.runs import RunPlan, build_operators, build_run, build_steps

GIB = float(1 << 30)


def write_memory(path: Path, rank: int, *levels: float) -> None:
    table = parts.build_table_from_rows("resources", process_memory(*levels))
    parts.write_table(table, layout.table_file(layout.rank_path(path, rank), "resources"))


def test_the_memory_of_every_rank_is_drawn_where_it_was_sampled(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run", RunPlan(ranks=2, operators=False))
    write_memory(path, 0, GIB, GIB, GIB)
    write_memory(path, 1, GIB, 3 * GIB, 3 * GIB)
    run = open_run(path)
    (memory,) = build_work_maps(run, summarize_ranks(run))
    assert memory.title == "Memory of every rank"
    assert "from 1.00 GiB (pale) to 3.00 GiB." in memory.caption
    assert {text for text in memory.data["texts"][0] if text} == {"1.00 GiB"}
    assert "3.00 GiB" in memory.data["texts"][1]


def test_the_flops_of_every_rank_are_drawn_for_the_detailed_windows(tmp_path: Path) -> None:
    plan = RunPlan(ranks=2)
    path = build_run(tmp_path / "run", plan)
    for rank in range(2):
        rows = [row | {"flops": 1e9 * (rank + 1)} for row in build_operators(build_steps(plan))]
        table = parts.build_table_from_rows("operators", rows)
        parts.write_table(table, layout.table_file(layout.rank_path(path, rank), "operators"))
    run = open_run(path)
    (flops,) = build_work_maps(run, summarize_ranks(run))
    assert flops.title == "FLOPs of every rank"
    assert flops.data["first"] == [10, 11, 12]
    assert all(text.endswith("FLOP") for row in flops.data["texts"] for text in row)


def test_one_rank_that_was_sampled_is_no_comparison(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run", RunPlan(ranks=2, operators=False))
    write_memory(path, 0, GIB)
    run = open_run(path)
    assert build_work_maps(run, summarize_ranks(run)) == ()
