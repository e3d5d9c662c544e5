"""Comparing two runs: differences, whether they are more than noise, and what makes the runs unlike."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collector.format.noise import measure_noise
from collector.format.run import RankRun, Run, open_run
from collector.format.schema import layout
from profiler_server.analysis.compare.comparison import Comparison, compare_ranks, summarize_comparison
from profiler_server.analysis.compare.gate import judge
from profiler_server.analysis.compare.run_times import Likeness, find_unlike, read_times
from tests.support.cases import PLANTED, Plant, build_case_run
from tests.support.row_edits import lay_end_to_end, rest_between_epochs, write_rows
from tests.support.runs import HEALTHY_STEP_MS, RunPlan, build_run, slow_loader_plan
from tests.support.tables import make_inference


def build_rank(path: Path, plan: RunPlan) -> RankRun:
    return open_run(build_run(path, plan)).rank(0)


@pytest.fixture
def slower(tmp_path: Path) -> Comparison:
    a = build_rank(tmp_path / "a", RunPlan())
    b = build_rank(tmp_path / "b", RunPlan(phases_ms={**HEALTHY_STEP_MS, "data_wait": 12.4}))
    return compare_ranks(a, b)


def test_names_the_phase_that_changed(slower: Comparison) -> None:
    clear = [d.name for d in slower.phases if d.is_clear]
    assert clear == ["Data wait"]
    assert slower.step.is_clear
    assert slower.step.change_ns == pytest.approx(12e6, rel=0.01)
    assert sum(d.change_ns for d in slower.phases) == pytest.approx(slower.step.change_ns, rel=1e-9)


def test_the_same_run_differs_from_itself_by_nothing_clear(tmp_path: Path) -> None:
    rank = build_rank(tmp_path / "a", RunPlan())
    same = compare_ranks(rank, rank)
    assert not same.step.is_clear
    assert not any(d.is_clear for d in (*same.phases, *same.operators))
    assert len(same.operators) == 7


def test_without_a_window_there_are_no_operators(tmp_path: Path) -> None:
    with_window = build_rank(tmp_path / "a", RunPlan())
    without = build_rank(tmp_path / "b", RunPlan(operators=False))
    found = compare_ranks(with_window, without)
    assert (found.operators, found.moved) == (
        (),
        "There are none to compare: B has no step that was recorded in detail",
    )
    assert "neither run has a step that was recorded in detail" in compare_ranks(without, without).moved


def test_one_step_is_too_few_to_tell(tmp_path: Path) -> None:
    rank = build_rank(tmp_path / "a", RunPlan(steps=1))
    found = compare_ranks(rank, rank)
    assert found.step.noise_ns is None
    assert {part.corrected_p for part in found.phases} == {None}
    assert measure_noise(np.array([1.0])) is None


def rewrite_operators(rank: RankRun, *changed: str, **constants: object) -> None:
    """Set columns of the operators of every second row, or of all rows for those that `changed` names."""
    rows = rank.table("operators").to_pylist()
    for number, row in enumerate(rows):
        row |= {name: value for name, value in constants.items() if name in changed or number % 2}
    write_rows(rank.folder, "operators", rows)


def test_operators_outside_of_every_step_are_in_no_mean(tmp_path: Path) -> None:
    ranks = [build_rank(tmp_path / name, RunPlan()) for name in "ab"]
    whole = compare_ranks(*ranks)
    rewrite_operators(ranks[1], step=None)
    found = compare_ranks(ranks[0], open_run(tmp_path / "b").rank(0))
    assert found.operators
    assert found.measure == whole.measure == "host"
    rewrite_operators(ranks[0], "step", step=None)
    assert compare_ranks(open_run(tmp_path / "a").rank(0), ranks[1]).operators == ()


def test_operators_are_compared_on_the_device_where_both_runs_used_one(tmp_path: Path) -> None:
    a, b = (build_rank(tmp_path / name, RunPlan()) for name in "ab")
    rewrite_operators(a, "device_self_ns", device_self_ns=1_000)
    a = open_run(tmp_path / "a").rank(0)
    assert compare_ranks(a, b).measure == "host"
    rewrite_operators(b, "device_self_ns", device_self_ns=3_000)
    found = compare_ranks(a, open_run(tmp_path / "b").rank(0))
    assert found.measure == "device"
    assert {d.b_ns / d.a_ns for d in found.operators} == {3.0}


def test_what_clearly_changed_comes_before_a_larger_change_that_may_be_noise(tmp_path: Path) -> None:
    a, b = (build_rank(tmp_path / name, RunPlan()) for name in "ab")
    rows = b.table("operators").to_pylist()
    noisy, clear = sorted({row["name"] for row in rows if row["step"] is not None})[:2]
    for number, row in enumerate(rows):
        row["self_ns"] += 1_000 if row["name"] == clear else 0
        row["self_ns"] += 10_000_000 if row["name"] == noisy and not number % 3 else 0
    write_rows(b.folder, "operators", rows)
    found = compare_ranks(a, open_run(tmp_path / "b").rank(0)).operators
    assert [d.name for d in found[:2]] == [clear, noisy]
    assert abs(found[1].change_ns) > abs(found[0].change_ns)


def test_the_whole_loop_is_compared_where_it_changed_otherwise_than_the_step(tmp_path: Path) -> None:
    plan = RunPlan(steps=40)
    a, b, little = (
        build_case_run(tmp_path / str(rest_ms), Plant(plan, edit=rest_between_epochs(10, rest_ms))).rank()
        for rest_ms in (1.0, 200.0, 2.0)
    )
    told = summarize_comparison(compare_ranks(a, b))
    assert "The whole loop, with evaluation, warm-up and what lies between steps, changed by +23.3 %" in told
    assert "whole loop" not in summarize_comparison(compare_ranks(a, little))


def test_the_sentence_names_the_phase_that_made_the_difference(tmp_path: Path) -> None:
    slow, fast = (
        build_rank(tmp_path / name, RunPlan(phases_ms={**HEALTHY_STEP_MS, "data_wait": wait_ms}))
        for name, wait_ms in (("slow", 23.0), ("fast", 0.7))
    )
    assert ", of it 22.3 ms data wait, noise within the runs ±" in summarize_comparison(compare_ranks(slow, fast))
    assert "B is slower by" in summarize_comparison(compare_ranks(fast, slow))
    found = compare_ranks(fast, slow)
    hardly = replace(found.step, a_ns=100.0, b_ns=100.75)
    assert "B is slower by" in summarize_comparison(replace(found, step=hardly))
    mixed = build_rank(tmp_path / "mixed", RunPlan(phases_ms={**HEALTHY_STEP_MS, "data_wait": 0.7, "forward": 25.0}))
    assert ", data wait alone by 22.3 ms, noise within the runs ±" in summarize_comparison(compare_ranks(slow, mixed))


def test_a_busy_host_is_named_in_the_cautions_of_a_comparison(tmp_path: Path) -> None:
    quiet = build_rank(tmp_path / "quiet", RunPlan())
    busy = build_case_run(tmp_path / "busy", PLANTED["noisy_host"]).rank()
    cores = busy.manifest.usable_cores
    assert f"other programs used 2.5 of {cores:g} cores while B ran" in compare_ranks(quiet, busy).cautions
    assert not [caution for caution in compare_ranks(quiet, quiet).cautions if "other programs" in caution]


def test_runs_that_only_infer_are_compared_by_their_batches(tmp_path: Path) -> None:
    runs = (build_run(tmp_path / "a"), build_run(tmp_path / "b", slow_loader_plan("read")))
    told = summarize_comparison(compare_ranks(*(open_run(make_inference(run)).rank() for run in runs)))
    assert told.startswith("B is slower by ")
    assert " per batch " in told
    assert "over 40 and 40 batches." in told


def test_operators_that_move_into_workers_are_no_gain(tmp_path: Path) -> None:
    here = build_rank(tmp_path / "here", RunPlan(workers=0))
    rows = here.table("operators").to_pylist()
    steps = sorted({row["step"] for row in rows if row["step"] is not None})
    made = {**rows[0], "name": "aten::resize", "phase": "data_wait", "self_ns": 4_000_000, "total_ns": 4_000_000}
    write_rows(here.folder, "operators", [*rows, *({**made, "step": step} for step in steps)])
    here, moved = open_run(tmp_path / "here").rank(0), build_rank(tmp_path / "moved", RunPlan(workers=2))
    found = compare_ranks(here, moved)
    assert "aten::resize" not in [d.name for d in found.operators]
    assert found.moved.startswith(
        "Operators that make batches are left out (4.00 ms a step in A): in B they run in DataLoader workers"
    )
    assert "(4.00 ms a step in B)" in compare_ranks(moved, here).moved
    # Where both make their batches in the training process, they are work of it like any other.
    both = compare_ranks(here, build_rank(tmp_path / "also", RunPlan(workers=0)))
    assert ("aten::resize" in [d.name for d in both.operators], both.moved) == (True, "")


def test_a_median_that_changed_the_other_way_is_said_beside_the_mean(tmp_path: Path) -> None:
    a, b = (build_rank(tmp_path / name, RunPlan(steps=60, operators=False)) for name in "ab")
    rows = b.table("steps").to_pylist()
    for row in rows:
        row["forward_ns"] += 300_000_000 if row["step"] % 10 == 0 else -3_000_000
    lay_end_to_end(rows)
    write_rows(b.folder, "steps", rows)
    found = summarize_comparison(compare_ranks(a, open_run(tmp_path / "b").rank(0)))
    assert found.startswith("B is slower by ")
    assert "The median step changed by −4" in found
    assert "The median" not in summarize_comparison(compare_ranks(a, a))


LIKE = Likeness("train.py", "host", 1, 0, (32,), 1000)


def build_with(path: Path, batch_size: int | None, parameters: int) -> Run:
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
    unsized = read_times(build_with(tmp_path / "c", None, 1000))
    assert unsized.batch_sizes == ()
    assert find_unlike([unsized, read_times(a)]) == []


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
