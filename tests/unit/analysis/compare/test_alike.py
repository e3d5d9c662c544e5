"""Runs whose steps do not do the same work are named as such, by the gate and by Compare in the same words."""

from __future__ import annotations

import json
from pathlib import Path

from collector.format.run import Run, open_run
from collector.format.schema import layout
from profiler_server.analysis.compare.comparison import compare_ranks
from profiler_server.analysis.compare.gate import judge
from profiler_server.analysis.compare.run_times import Likeness, find_unlike, read_times
from tests.support.runs import RunPlan, build_run

LIKE = Likeness("train.py", "host", 1, 0, (32,), 1000)


def build_with(path: Path, batch_size: int, parameters: int) -> Run:
    build_run(path, RunPlan(facts={"optimizers": [{"parameters": parameters}]}))
    file = layout.rank_file(path, 0)
    manifest = json.loads(file.read_text(encoding="utf-8"))
    manifest["loaders"][0]["batch_size"] = batch_size
    file.write_text(json.dumps(manifest), encoding="utf-8")
    return open_run(path)


def test_another_batch_size_and_another_model_are_named_by_the_gate_and_by_compare(tmp_path: Path) -> None:
    a, b = build_with(tmp_path / "a", 32, 1000), build_with(tmp_path / "b", 64, 2000)
    words = (
        "different models: 1,000 and 2,000 trained parameters",
        "different batch sizes: 32 and 64: their steps do not do the same work",
    )
    assert compare_ranks(a.rank(), b.rank()).cautions == words
    assert judge([read_times(a)], [read_times(b)]).cautions == words
    assert judge([read_times(a)], [read_times(a)]).cautions == ("a was given twice",)


def test_other_numbers_of_ranks_are_named_by_the_gate_and_the_rank_that_it_judges_where_they_are_alike(
    tmp_path: Path,
) -> None:
    one, four = (open_run(build_run(tmp_path / str(ranks), RunPlan(ranks=ranks))) for ranks in (1, 4))
    verdict = judge([read_times(one)], [read_times(four)])
    assert verdict.cautions == ("different numbers of ranks: 1 and 4; compared is rank 0 of each",)
    assert verdict.rank == ""
    assert judge([read_times(four)], [read_times(four)]).rank == "rank 0 of 4"
    assert judge([read_times(one)], [read_times(one)]).rank == ""
    assert judge([read_times(four, 2)], [read_times(four, 2)]).rank == "rank 2 of 4"


def test_what_was_not_recorded_is_no_difference_and_of_many_values_the_first_are_named() -> None:
    unknown = Likeness("", "", 1, 0)
    assert find_unlike([LIKE, unknown, LIKE]) == []
    hosts = [Likeness("train.py", f"host-{at}", 1, 0) for at in range(5)]
    assert find_unlike(hosts) == ["different hosts: host-0, host-1, host-2 and 2 more"]
    assert find_unlike(hosts[:3]) == ["different hosts: host-0, host-1 and host-2"]
    both = Likeness("train.py", "host", 1, 0, (32, 100), 1000)
    assert find_unlike([LIKE, both])[0].startswith("different batch sizes: 32 and 32 with 100:")
