"""`report --json` has the keys that others rely on, and the text says the same."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from collector.format import steps
from collector.format.phases import PHASES
from collector.format.run import open_run
from collector.format.schema import layout, manifest
from collector.format.schema.errors import RunError
from collector.format.steps import summarize_phases
from profiler_server.analysis import change_points
from profiler_server.analysis.compare import comparison, gate, run_statistics
from profiler_server.analysis.memory import memory
from profiler_server.analysis.ranks import ends, shortage
from profiler_server.analysis.steps import requests
from profiler_server.diagnosis import outcome, tried
from profiler_server.facts import job, loading, machine, pipeline, ranks, results, start_up, useful
from profiler_server.facts import steps as facts_steps
from profiler_server.format import format_phase_shares
from profiler_server.report import build_report, schema
from profiler_server.report.brief import write_brief
from profiler_server.report.text import render_text
from tests.support import tables
from tests.support.cases import PLANTED, Plant, build_case_run
from tests.support.machines import build_ranks
from tests.support.report_shape import check_report
from tests.support.row_edits import lay_end_to_end, rest_between_epochs, write_rows
from tests.support.runs import HEALTHY_STEP_MS, MS, RunPlan, build_run, build_steps
from tests.support.stacks import in_phase, in_stage, library, own, write_stacks
from tests.support.windows import build_window, compute


@pytest.mark.parametrize(
    "name", ["too_few_workers", "slow_transform", "no_workers", "noisy_host", "exposed_all_reduce"]
)
def test_report_has_the_keys_that_others_rely_on(name: str, tmp_path: Path) -> None:
    report = json.loads(json.dumps(build_report(build_case_run(tmp_path / "run", PLANTED[name]))))
    check_report(report)
    assert report["suggestions"]


def test_every_key_of_the_schema_is_a_field_of_its_part() -> None:
    facts = (ends, shortage, results, machine, pipeline, facts_steps, job, loading, ranks, requests, start_up, useful)
    sources = (steps, manifest, change_points, comparison, gate, run_statistics, memory, outcome, tried, *facts)
    found = [part for module in sources for part in vars(module).values() if dataclasses.is_dataclass(part)]
    parts_of = {part.__name__: part for part in found if isinstance(part, type) and part.__name__ in schema.PARTS}
    assert parts_of.keys() == schema.PARTS.keys()
    for name, part in parts_of.items():
        known = {field.name for field in dataclasses.fields(part)} | set(dir(part))
        assert set(schema.PARTS[name].split()) <= known, name


def test_no_public_key_is_made_from_the_name_of_a_field() -> None:
    rooms = ("report", "commands", "web")
    files = [path for room in rooms for path in (Path(schema.__file__).parents[1] / room).rglob("*.py")]
    assert files
    assert [path.name for path in files if "asdict" in path.read_text("utf-8")] == []


def test_the_functions_of_a_phase_and_a_stage_are_reported(tmp_path: Path) -> None:
    resize = library("Image.resize", "PIL/Image.py")
    rows = [
        in_phase("forward", 50, own("Net.forward", 7)),
        in_phase("tail", 61, own("accuracy", 88)),
        in_phase("tail", 39, own("log", 9)),
        in_stage("read", 100, own("Photos.__getitem__", 31, "data.py"), resize),
    ]
    run = open_run(write_stacks(build_run(tmp_path / "run"), rows))
    report = json.loads(json.dumps(build_report(run)))
    check_report(report)
    parts = {part["name"]: part for part in report["ranks"][0]["stacks"]["phases"]}
    assert [(entry["function"], entry["share_frac"]) for entry in parts["tail"]["functions"]] == [
        ("accuracy", 0.61),
        ("log", 0.39),
    ]
    text = render_text(report, run)
    assert "of the step): accuracy() at train.py:88, 61 ± 9 %" in text
    assert "in read: PIL.Image.resize() called in Photos.__getitem__ (data.py:31), 100 ± 2 %" in text


def test_every_rank_is_reported_with_phases_that_sum_to_the_mean_step_exactly(tmp_path: Path) -> None:
    report = build_report(open_run(build_run(tmp_path / "run", RunPlan(ranks=3, steps=43))))
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1, 2]
    assert report["run"]["world_size"] == 3
    for rank in report["ranks"]:
        assert sum(phase["mean_ns"] for phase in rank["phases"]) == rank["steps"]["duration_ns"]["mean"]
        assert sum(phase["share_frac"] for phase in rank["phases"]) == pytest.approx(1.0, abs=1e-9)
        assert rank["stacks"] is None


def test_a_run_without_steps_is_reported_as_such(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "run", RunPlan(steps=0, operators=False)))
    report = build_report(run)
    nothing = dict.fromkeys(("first", "last", "duration_ns", "percentiles_missing"))
    assert report["ranks"][0]["steps"] == {"count": 0, "excluded": [], **nothing}
    assert report["bound_by"]["kind"] == "unknown"
    assert "no steps were recorded" in render_text(report, run)


def test_a_damaged_table_is_a_warning_and_leaves_the_rest(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "run"))
    (run.rank(0).folder / "operators.parquet").write_bytes(b"PAR1 not really")
    (run.rank(0).folder / "steps.parquet").write_bytes(b"")
    report = build_report(run)
    assert report["ranks"][0]["operators"] == []
    assert report["ranks"][0]["queues"]
    assert len([text for text in report["warnings"] if "operators" in text]) == 1
    assert "Warnings" in render_text(report, run)


def test_text_says_the_verdict_the_figures_and_the_suggestions(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", PLANTED["too_few_workers"])
    text = render_text(build_report(run), run)
    assert "Highly input-bound: the step waits 96.0 ms of 160 ms (60.2 %) for data; read is the slow stage." in text
    for figure in ("count 97", "min ", "max ", "mean 160 ms", "median ", "p90 ", "p95 ", "p97 ", "p99 ", "p99.9 "):
        assert figure in text
    assert "1. More workers would keep up  [high, too_few_workers]" in text
    assert "| " in text
    assert text.endswith("\n")


def test_few_steps_have_no_percentiles_above_the_median(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "run", RunPlan(steps=12, operators=False)))
    report = build_report(run)
    steps = report["ranks"][0]["steps"]
    assert steps["duration_ns"]["p50"] is not None
    assert {steps["duration_ns"][name] for name in ("p90", "p95", "p97", "p99", "p999")} == {None}
    assert steps["percentiles_missing"] == "Percentiles above the median need 20 steps; the average covers 9."
    text = render_text(report, run)
    assert steps["percentiles_missing"] in text
    assert "median " in text
    assert not re.search(r"\bp9\d", text)


def test_what_asks_for_no_change_is_no_suggestion_and_events_lost_are_warned_of(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", dataclasses.replace(PLANTED["noisy_host"], manifest={"events_lost": 1234}))
    report = build_report(run)
    assert "rank 0: the log was full, 1,234 events lost" in report["warnings"]
    text = render_text(report, run)
    before, _, after = text.partition("\nTo know\n")
    assert "Suggestions: none. " in before
    assert "  Other programs share this host  [info, noisy_host]" in after
    assert "No step time is predicted" not in after
    assert write_brief(run)[1].startswith("No change is sure to ")


@pytest.mark.parametrize("rows", [(), (("Critic.visit", 41), ("Critic.learn", 40))])
def test_the_brief_names_the_lines_where_the_change_names_none(
    rows: tuple[tuple[str, int], ...], tmp_path: Path
) -> None:
    run = build_case_run(tmp_path / "run", PLANTED["python_gap"])
    write_stacks(run.path, [in_phase("tail", samples, own(name, 84)) for name, samples in rows])
    _, _, gain, *further = write_brief(open_run(run.path))
    assert "instead of 93.0 ms" in gain
    assert [line for line in further if re.match(r"Why: .*Critic.visit\(\) at train.py:84", line)] == further[
        : len(rows)
    ]


def test_the_shares_of_the_phases_are_rounded_as_on_the_pages(tmp_path: Path) -> None:
    """Each of three equal parts is 33.3 %; one of them is shown as 33.4 %, so that the sum is 100."""
    plan = RunPlan(steps=20, phases_ms=dict.fromkeys(("forward", "backward", "communication"), 10.0))
    run = open_run(build_run(tmp_path / "run", plan))
    text = render_text(build_report(run), run)
    shown = [re.search(rf"^  {re.escape(phase.label)} .* ([\d.]+ %)", text, re.MULTILINE) for phase in PHASES]
    exact = {phase.name: phase.share_frac for phase in summarize_phases(run.rank(0).table("steps"))}
    assert [found[1] if found else "" for found in shown] == list(format_phase_shares(exact).values())
    assert sum(float(found[1][:-2]) for found in shown if found) == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ("summarize_stages", "its stages cannot be reported"),
        ("find_feeding_loaders", "its loaders cannot be reported"),
        ("list_outliers", "its slow steps cannot be reported"),
        ("diagnose", "what it is bound by cannot be reported"),
    ],
)
def test_a_part_that_fails_is_named_and_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, named: str
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise ZeroDivisionError("division by zero")

    for module in ("building", "text"):
        monkeypatch.setattr(f"profiler_server.report.{module}.{part}", fail, raising=False)
    run = open_run(build_run(tmp_path / "run"))
    report = build_report(run)
    assert f"rank 0: {named}: ZeroDivisionError: division by zero" in report["warnings"]
    assert report["ranks"][0]["steps"]["count"] > 30
    assert report["ranks"][0]["operators"]
    text = render_text(report, run)
    assert named in text
    assert "Forward" in text


def test_the_text_tells_of_a_slow_rank_and_of_waiting_and_of_neither_in_a_job_of_one(tmp_path: Path) -> None:
    one = open_run(build_run(tmp_path / "one"))
    assert "\nRanks\n" not in render_text(build_report(one), one)
    two = open_run(build_run(tmp_path / "two", RunPlan(ranks=2)))
    write_rows(two.rank(1).folder, "steps", build_steps(RunPlan(phases_ms={**HEALTHY_STEP_MS, "forward": 30.0})))
    assert (
        "Rank 1 takes 10.0 ms longer than the other rank a step (14.5 %): forward. Its forward takes 30.0 ms against 20.0 ms."
        in render_text(build_report(two), two)
    )
    held = open_run(
        build_run(tmp_path / "held", RunPlan(ranks=2, phases_ms={**HEALTHY_STEP_MS, "communication": 64.0}))
    )
    assert "The ranks are held in collectives for 50.0 % of the step on average" in render_text(
        build_report(held), held
    )


def test_the_report_says_who_holds_the_job_up_as_the_page_does(tmp_path: Path) -> None:
    run = open_run(build_ranks(tmp_path / "run", 4, slow=3))
    report = json.loads(json.dumps(build_report(run)))
    check_report(report)
    judged = report["judgement"]
    assert judged["sentence"].startswith("Rank 3 holds 3 others up 12.0 ms a step (15.0 %): data wait.")
    assert (judged["straggler"]["rank"], judged["straggler"]["phase"]) == (3, "data_wait")
    assert judged["straggler"]["gain_ns"] == judged["blame_ns"]["3"] == pytest.approx(12_000_000, rel=0.02)
    assert report["what_if"]["mend_rank_gain_ns"] == judged["blame_ns"]
    assert (judged["ranks_read"], report["ranks"][3]["rank"]) == (4, 3)
    assert build_report(open_run(build_run(tmp_path / "one")))["judgement"] is None


def test_ranks_that_come_last_by_turns_are_reported_with_how_evenly_they_do(tmp_path: Path) -> None:
    plan = RunPlan(ranks=2, steps=60)
    run = open_run(build_run(tmp_path / "run", plan))
    for rank in range(2):
        rows = build_steps(plan)
        for row in rows:
            row["backward_ns" if row["step"] % 2 == rank else "communication_ns"] += 60 * MS
        lay_end_to_end(rows)
        write_rows(run.rank(rank).folder, "steps", rows)
    report = json.loads(json.dumps(build_report(open_run(run.path))))
    check_report(report)
    assert report["judgement"]["rotation"]["entropy_frac"] == pytest.approx(1.0, abs=0.01)


def test_a_damaged_table_is_told_in_brief_by_its_message(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "run", RunPlan(operators=False)))
    layout.table_file(layout.rank_path(run.path, 0), "steps").write_bytes(b"x" * 40)
    with pytest.raises(RunError, match=r"run cannot be judged: /.*steps\.parquet is damaged") as caught:
        write_brief(run)
    assert "TableBrokenError" not in str(caught.value)


def test_evaluation_and_what_lay_between_epochs_are_told_beside_the_training_steps(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "run"))
    assert "evaluation:" not in render_text(build_report(run), run)
    rows = build_steps(RunPlan())
    for row in rows[-3:]:
        row["kind"] = "eval"
    write_rows(run.rank(0).folder, "steps", rows)
    assert "evaluation: 3 batches, " in render_text(build_report(run), run)
    rested = build_case_run(tmp_path / "rested", Plant(RunPlan(steps=40), edit=rest_between_epochs(10, 100.0)))
    between = "held up by time between epochs: 3 times, 300 ms in all (10.5 % of the recorded time), 100 ms the longest"
    assert between in render_text(build_report(rested), rested)


def test_the_text_tells_of_the_device_its_kernels_and_its_memory(tmp_path: Path) -> None:
    run = build_window(tmp_path, compute, steps=6)
    sizes = {1: 5, 2: 3 << 20}
    rows = [{"start_ns": at, "device": 0, "change_bytes": size, "allocated_bytes": size} for at, size in sizes.items()]
    tables.write_rows(run.path, "memory", rows)
    text = render_text(build_report(run), run)
    assert re.search(
        r"  device    computes \d+\.\d %, .*is idle \d+\.\d % of the time from its first to its last work", text
    )
    assert re.search(r"  kernel    gemm_sm90: [\d.]+ ms, \d+ calls", text)
    assert "  memory    at most 3.00 MiB allocated on device 0" in text
