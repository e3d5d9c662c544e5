"""What changed between two runs: lines of the user's that are gone, shorter or new, and settings that differ."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import Run
from profiler_server.diagnosis.changes import CodeChange, find_code_changes, find_setting_changes
from profiler_server.diagnosis.outcome import Outcome, judge_outcome
from profiler_server.diagnosis.outcome_sentences import say_outcome
from tests.support.cases import Plant, build_case_run, plan_of
from tests.support.live import edit_run
from tests.support.own_work import MODULE, TRAINS, late
from tests.support.row_edits import Row
from tests.support.stacks import in_phase, own

SLOW, FAST = own("normalize", 41), own("lookup", 70)
REST = in_phase("forward", 20, *MODULE)
PAIR = in_phase("forward", 80, SLOW), in_phase("forward", 20, FAST)


def train(path: Path, forward: float, *rows: Row, **changes: Any) -> Run:
    plan = dataclasses.replace(plan_of(forward=forward), **changes)
    return build_case_run(path, Plant(plan, tables={"stacks": late(*rows, *TRAINS)}))


def judge(folder: Path, before: tuple[float, tuple[Row, ...]], after: tuple[float, tuple[Row, ...]]) -> Outcome | None:
    runs = [train(folder / name, ms, *rows) for name, (ms, rows) in (("before", before), ("after", after))]
    return judge_outcome(*runs)


def test_a_line_that_is_gone_is_the_outcome_of_the_advice_that_names_it(tmp_path: Path) -> None:
    found = judge(tmp_path, (60.0, (PAIR[0], REST)), (12.0, (REST,)))
    assert found is not None
    assert [(line.name, round(line.before_ns / 1e6), line.after_ns) for line in found.lines] == [("normalize()", 48, 0)]
    assert found.taken == ()
    assert len(found.unpredicted) == 1
    assert "normalize()" in found.unpredicted[0]
    (said,) = say_outcome(found)
    assert "was taken; no step had been predicted" in said
    assert "normalize() is gone (48.0 ms before); the step takes 56.0 ms instead of 104 ms." in said


def test_a_line_that_takes_less_is_named_with_both_times(tmp_path: Path) -> None:
    found = judge(tmp_path, (60.0, PAIR), (18.0, (in_phase("forward", 33, SLOW), in_phase("forward", 67, FAST))))
    assert found is not None
    assert [line.name for line in found.lines] == ["normalize()"]
    assert "normalize() takes 5.94 ms instead of 48.0 ms" in " ".join(say_outcome(found))


def test_a_line_below_the_share_of_a_hotspot_is_not_gone(tmp_path: Path) -> None:
    found = judge(tmp_path, (60.0, PAIR), (12.0, (in_phase("forward", 2, SLOW), in_phase("forward", 98, FAST))))
    assert found is not None
    assert "normalize() takes 240 µs instead of 48.0 ms" in " ".join(say_outcome(found))


def test_what_stands_in_the_place_of_a_line_is_named_with_its_time(tmp_path: Path) -> None:
    found = judge(tmp_path, (60.0, (PAIR[0], REST)), (30.0, (in_phase("forward", 80, own("fast", 41)), REST)))
    assert found is not None
    assert "normalize() is gone (48.0 ms before); fast() is new (24.0 ms)" in " ".join(say_outcome(found))
    assert found.unpredicted == ()


def test_a_line_with_another_name_is_not_mended(tmp_path: Path) -> None:
    found = judge(tmp_path, (60.0, (PAIR[0], REST)), (50.0, (in_phase("forward", 80, own("renamed", 41)), REST)))
    assert found is not None
    assert (found.taken, found.unpredicted) == ((), ())
    assert "normalize() is gone (48.0 ms before); renamed() is new (40.0 ms)" in say_outcome(found)[0]


def test_a_step_that_is_longer_names_the_lines_that_take_more(tmp_path: Path) -> None:
    found = judge(tmp_path, (12.0, (REST,)), (60.0, (PAIR[0], REST)))
    assert found is not None
    assert say_outcome(found) == ("normalize() is new (48.0 ms); the step takes 104 ms instead of 56.0 ms.",)


@pytest.mark.parametrize("after", [(60.0, (REST,)), (55.0, (in_phase("forward", 1, FAST), in_phase("forward", 2)))])
def test_steps_as_long_as_before_and_too_few_samples_name_no_line(
    tmp_path: Path, after: tuple[float, tuple[Row, ...]]
) -> None:
    assert judge(tmp_path, (60.0, (PAIR[0], REST)), after) is None


def test_a_loader_whose_work_workers_hide_is_not_gone(tmp_path: Path) -> None:
    reads = in_phase("data_wait", 90, own("Photos.__getitem__", 9, "data.py"))
    before = build_case_run(
        tmp_path / "a", Plant(plan_of(workers=0, data_wait=60.0), tables={"stacks": late(reads, REST, *TRAINS)})
    )
    after = train(tmp_path / "b", 20.0, REST)
    found = judge_outcome(before, after)
    assert found is not None
    assert found.lines == ()
    assert ("num_workers", "0", "2") in [(each.name, each.before, each.after) for each in found.settings]


def write_run(path: Path, argv: tuple[str, ...] = (), **facts: Any) -> Run:
    run = build_case_run(path, Plant(manifest={"facts": facts, "torch_threads": len(argv) or 1}))
    edit_run(path, argv=argv)
    return Run(run.path)


def test_code_that_differs_is_counted_in_lines(tmp_path: Path) -> None:
    texts = "aaaabbbbccccdddd", "aaaaffffdddd"
    runs = [write_run(tmp_path / text, source_sums={"/home/me/train.py": text, "/x/same.py": "0000"}) for text in texts]
    assert find_code_changes(*runs) == (CodeChange("train.py", 1, 2),)
    assert find_code_changes(runs[0], runs[0]) == ()
    for odd in (None, 3, {"/home/me/train.py": 7}, {"/home/me/train.py": "0" * 10**6}):
        assert (
            find_code_changes(runs[0], write_run(tmp_path / f"odd-{type(odd)}-{len(str(odd))}", source_sums=odd)) == ()
        )


def test_settings_that_differ_are_listed_with_both_values(tmp_path: Path) -> None:
    adam = {"name": "Adam", "foreach": None, "fused": None}
    before = write_run(tmp_path / "a", ("--lr", "0.1", "--fast"), optimizers=[adam], anomaly_mode=True, ddp="odd")
    after = write_run(tmp_path / "b", ("--lr", "0.2"), optimizers=[{**adam, "fused": True}], anomaly_mode=False)
    assert [(each.name, each.before, each.after) for each in find_setting_changes(before, after)] == [
        ("--lr", "0.1 --fast", "0.2"),
        ("Adam fused", "default", "True"),
        ("anomaly detection", "True", "False"),
        ("torch threads", "3", "2"),
    ]
    assert find_setting_changes(before, before) == ()
