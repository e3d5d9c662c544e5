"""What held the training thread has a name, and a slow step says which of it made it slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collector.format.run import RankRun
from profiler_server.analysis.steps.interruptions import read_interruptions
from profiler_server.analysis.steps.outliers import Outlier, list_outliers
from profiler_server.facts.steps import sum_interruptions
from tests.support.cases import Plant, build_case_run
from tests.support.row_edits import rest_between_epochs
from tests.support.runs import MS, RunPlan, build_steps

PLAN = RunPlan(steps=60, operators=False)
SLOW = 40
EXTRA_NS = 320 * MS


def _slow(rows: list[dict[str, Any]]) -> None:
    rows[SLOW - 1]["tail_ns"] += EXTRA_NS


def _mark(name: str, start_ns: int, duration_ns: int, **fields: Any) -> dict[str, Any]:
    times = {"start_ns": start_ns, "duration_ns": duration_ns}
    common = {"id": 0, "path": name, "thread_id": 1, "process": 1, "failed": False, "training": True}
    return {"name": name, **times, **common, **fields}


def _start_of(step: int) -> int:
    return int(build_steps(PLAN)[step - 1]["start_ns"])


def _build(path: Path, **tables: list[dict[str, Any]]) -> RankRun:
    return build_case_run(path, Plant(PLAN, edit=_slow, tables=tables)).rank()


def _find_slow(rank: RankRun) -> Outlier:
    shown = list_outliers(rank.table("steps"), interruptions=read_interruptions(rank)).shown
    return next(outlier for outlier in shown if outlier.step == SLOW)


def test_a_checkpoint_that_fills_the_extra_time_is_the_cause(tmp_path: Path) -> None:
    outlier = _find_slow(_build(tmp_path, ranges=[_mark("torch.save", _start_of(SLOW) + 60 * MS, 300 * MS)]))
    assert outlier.cause == "held"
    assert outlier.held is not None
    assert (outlier.held.label, outlier.held_ns) == ("checkpoint (torch.save)", 300 * MS)


def test_a_range_on_another_thread_is_no_cause(tmp_path: Path) -> None:
    mark = _mark("torch.save", _start_of(SLOW) + 60 * MS, 300 * MS, training=False)
    assert _find_slow(_build(tmp_path, ranges=[mark])).cause == "phase"


def test_a_range_that_every_step_has_is_no_cause_and_the_one_inside_of_it_is(tmp_path: Path) -> None:
    steps = build_steps(PLAN)
    marks = [
        _mark("whole step", row["start_ns"], row["duration_ns"] + EXTRA_NS * (row["step"] == SLOW), id=row["step"])
        for row in steps
    ]
    marks.append(_mark("checkpoint", _start_of(SLOW) + 60 * MS, 310 * MS, id=1000, parent=SLOW))
    outlier = _find_slow(_build(tmp_path, ranges=marks))
    assert outlier.held is not None
    assert outlier.held.label == "checkpoint (checkpoint)"


def test_a_recompilation_is_a_cause_with_its_reason(tmp_path: Path) -> None:
    times = {"start_ns": _start_of(SLOW) + 2 * MS, "duration_ns": 310 * MS}
    what = {"kind": "recompile", "name": "forward (model.py:12)", "reason": "size mismatch at index 0\nmore"}
    outlier = _find_slow(_build(tmp_path, compiles=[{"step": SLOW, **times, **what}]))
    assert outlier.held is not None
    assert outlier.held.label == "recompilation of forward (model.py:12)"
    assert outlier.held.reason == "size mismatch at index 0"


def test_forwards_without_gradients_that_other_steps_have_not_are_validation(tmp_path: Path) -> None:
    def validate(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["no_grad_forwards"] = 5 * (row["step"] == SLOW)
        rows[SLOW - 1]["forward_ns"] += EXTRA_NS

    rank = build_case_run(tmp_path, Plant(PLAN, edit=validate)).rank()
    assert _find_slow(rank).cause == "validation"


def test_evaluation_batches_between_two_steps_are_one_pass(tmp_path: Path) -> None:
    def evaluate(rows: list[dict[str, Any]]) -> None:
        for row in (*rows[20:24], *rows[30:32]):
            row["kind"] = "eval"

    rank = build_case_run(tmp_path, Plant(PLAN, edit=evaluate)).rank()
    (passes,) = sum_interruptions(read_interruptions(rank))
    assert (passes.held.label, passes.count) == ("validation", 2)
    steps = rank.table("steps").to_pylist()
    assert passes.total_ns == sum(row["duration_ns"] for row in steps if row["kind"] == "eval")
    assert passes.longest_at_ns == steps[20]["start_ns"]


def test_sums_are_by_name_and_leave_out_what_the_user_marked(tmp_path: Path) -> None:
    at = _start_of(SLOW)
    marks = [
        _mark("torch.save", at, 100 * MS, id=1),
        _mark("torch.save", at + 200 * MS, 50 * MS, id=2),
        _mark("augment", at + 300 * MS, 10 * MS, id=3),
    ]
    (saved,) = sum_interruptions(read_interruptions(_build(tmp_path, ranges=marks)))
    assert (saved.count, saved.total_ns, saved.longest_ns, saved.longest_at_ns) == (2, 150 * MS, 100 * MS, at)


def test_recompilations_of_a_function_are_one_sum_with_the_reason_of_the_longest(tmp_path: Path) -> None:
    common = {"step": 3, "kind": "recompile", "start_ns": 1100 * MS, "name": "forward (model.py:12)"}
    lengths = ((100, "size 8"), (300, "size 16"))
    compiles = [{**common, "duration_ns": length * MS, "reason": reason} for length, reason in lengths]
    (again,) = sum_interruptions(read_interruptions(_build(tmp_path, compiles=compiles)))
    assert (again.count, again.total_ns, again.held.reason) == (2, 400 * MS, "size 16")


def test_saves_that_only_together_fill_the_extra_time_are_named_together(tmp_path: Path) -> None:
    at = _start_of(SLOW) + 60 * MS
    names = ("safetensors.save_file", "torch.save", "torch.save")
    marks = [_mark(name, at + 100 * number * MS, 70 * MS, id=number) for number, name in enumerate(names)]
    outlier = _find_slow(_build(tmp_path, ranges=marks))
    assert outlier.held is not None
    assert outlier.held.label == "checkpoint (safetensors.save_file, torch.save)"
    assert outlier.held_ns == 210 * MS


def test_what_lies_between_epochs_is_summed_unless_it_is_next_to_nothing(tmp_path: Path) -> None:
    plan = RunPlan(steps=40)
    shown, little = (
        sum_interruptions(read_interruptions(build_case_run(tmp_path / name, Plant(plan, edit=edit)).rank()))
        for name, edit in (("a", rest_between_epochs(10, 100.0)), ("b", rest_between_epochs(10, 0.1)))
    )
    assert [(entry.held.label, entry.count, entry.total_ns, entry.longest_ns) for entry in shown] == [
        ("time between epochs", 3, 300 * MS, 100 * MS)
    ]
    assert little == ()
