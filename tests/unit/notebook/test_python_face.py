"""A run as a value in Python: what it is called, what it shows of itself, and its totals."""

from __future__ import annotations

import gzip
import json
import math
import re
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

import collector
from collector.format.phases import PHASE_NAMES
from collector.format.schema import layout
from collector.format.schema.errors import OptionError, OutputError, RunNotFoundError
from collector.notebook.advice import Advice
from collector.notebook.run import Run
from collector.plugins import find_plugins
from profiler_server.diagnosis.judging import diagnose
from profiler_server.format import say_gain
from profiler_server.report import build_report
from profiler_server.report.text import render_text
from tests.support.cases import PLANTED, Plant, build_case_run
from tests.support.live import edit_rank
from tests.support.runs import MS, RunPlan, build_run, slow_loader_plan
from tests.support.tables import make_inference, stage, write_rows


def test_a_run_is_opened_by_its_name_or_id_as_the_commands_do(tmp_path: Path) -> None:
    build_run(tmp_path / "team/digits", RunPlan(steps=3))
    assert collector.open_run("team/digits", base_dir=tmp_path).path == tmp_path / "team/digits"
    assert collector.open_run("digits", base_dir=str(tmp_path)).path == tmp_path / "team/digits"
    assert collector.open_run(tmp_path / "team/digits", base_dir=tmp_path / "team").path == tmp_path / "team/digits"
    build_run(tmp_path / "other/digits", RunPlan(steps=3))
    with pytest.raises(RunNotFoundError, match="other/digits, team/digits"):
        collector.open_run("digits", base_dir=tmp_path)
    with pytest.raises(RunNotFoundError, match="There is no run 'letters'"):
        collector.open_run("letters", base_dir=tmp_path)


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "../outside", ""])
def test_what_can_be_no_run_is_a_plain_error(tmp_path: Path, name: str) -> None:
    for base_dir in (None, tmp_path):
        with pytest.raises(RunNotFoundError):
            collector.open_run(name, base_dir=base_dir)


def test_a_run_that_vanished_still_has_a_text(tmp_path: Path) -> None:
    path = build_run(tmp_path / "digits", RunPlan(steps=3))
    run = collector.open_run(path)
    rank = run.rank()
    layout.rank_file(path, 0).write_text("{", encoding="utf-8")
    assert "rank.json" in repr(run)
    assert "rank.json" in repr(rank)
    assert "rank.json" in run._repr_html_()


def test_what_a_notebook_shows_is_small_and_escaped(tmp_path: Path) -> None:
    path = build_run(tmp_path / "<script>alert(1)", RunPlan(steps=3))
    shown = collector.open_run(path)._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;alert(1)" in shown
    assert len(shown) < 2_000
    totals = collector.open_run(path).statistics()._repr_html_()
    assert "<script" not in totals


def test_totals_by_stage_and_kind_equal_the_rows_of_the_table(tmp_path: Path) -> None:
    run = collector.open_run(build_run(tmp_path / "digits"))
    found = run.statistics()
    manifest = run.rank().manifest
    assert manifest.ended_unix_ns is not None
    assert found.wall_ns == manifest.ended_unix_ns - manifest.started_unix_ns
    assert found.steps == 40
    rows = run.table("stages").to_pylist()
    for entry in found.table.to_pylist():
        same = [row for row in rows if (row["stage"], row["kind"]) == (entry["stage"], entry["kind"])]
        assert entry["count"] == len(same)
        assert entry["total_ns"] == sum(row["duration_ns"] for row in same)
        assert entry["items"] == sum(row["items"] for row in same)
        assert entry["replicas"] == len({row["replica"] for row in same})
        assert entry["wall_frac"] == pytest.approx(entry["total_ns"] / found.wall_ns / entry["replicas"])
    assert sum(found.table["count"].to_pylist()) == len(rows)
    assert list(found.frame().stage.unique()) == ["read", "transform", "collate"]
    assert "read, loader 0" in str(found)


def test_the_start_of_the_recorder_is_no_wall_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find, slow_ns = find_plugins, 300 * MS

    def find_slowly(room: ModuleType, name: str) -> tuple[Any, ...]:
        time.sleep(slow_ns / 1e9)
        return find(room, name)

    monkeypatch.setattr("collector.session.recording.find_plugins", find_slowly)
    began_ns = time.time_ns()
    run = collector.Profiler(tmp_path / "run", window=None).analyse()
    assert run.rank().manifest.started_unix_ns >= began_ns + slow_ns


def test_a_run_without_steps_has_totals_and_a_wall_time(tmp_path: Path) -> None:
    path = build_run(tmp_path / "resize", RunPlan(steps=1))
    layout.table_file(layout.rank_path(path, 0), "steps").unlink()
    rows = [stage("Decode", replica=n, loader=None, duration_ns=40 * MS, bytes=10, cpu_ns=None) for n in (0, 1)]
    write_rows(path, "stages", rows)
    start = collector.open_run(path).rank().manifest.started_unix_ns
    edit_rank(path, ended_unix_ns=start + 100 * MS)
    found = collector.open_run(path).statistics()
    assert (found.steps, found.wall_ns) == (0, 100 * MS)
    (row,) = found.table.to_pylist()
    assert (row["stage"], row["replicas"], row["total_ns"], row["bytes"]) == ("Decode", 2, 80 * MS, 20)
    assert row["wall_frac"] == pytest.approx(0.4)
    assert row["cpu_ns"] is None
    assert "0.100 s of wall time, 0 steps" in str(found)


def test_a_run_gives_the_advice_of_its_pages(tmp_path: Path) -> None:
    run = collector.open_run(build_run(tmp_path / "slow", slow_loader_plan("transform")))
    advice, shown = run.suggestions(), diagnose(run, 0)
    assert advice.verdict == shown.sentence
    assert [(entry.rule, entry.predicted_step_ns, entry.change) for entry in advice] == [
        (entry.rule, entry.predicted_step_ns, entry.change) for entry in shown.suggestions
    ]
    assert len(advice) == len(shown.suggestions) > 0
    text = str(advice)
    assert text.startswith(shown.sentence)
    assert all(f"{at}. {entry.title}. {say_gain(entry)}." in text for at, entry in enumerate(advice, 1))
    gains = " ".join(say_gain(entry) for entry in advice)
    assert "Predicted step: " in gains
    assert ", if transforms took no time" in gains


def test_that_no_step_time_is_predicted_is_said_once(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", PLANTED["threads_over_cores"])
    advice = run.suggestions()
    unpredicted = [entry for entry in advice if entry.predicted_step_ns is entry.least_step_ns is None]
    assert unpredicted
    for text in (str(advice), advice._repr_html_(), render_text(build_report(run), run)):
        assert text.count("No step time is predicted") == len(unpredicted)


def test_a_healthy_run_says_why_it_gives_none(tmp_path: Path) -> None:
    advice = collector.open_run(build_run(tmp_path / "healthy", RunPlan(steps=100))).suggestions()
    assert len(advice) == 0
    assert advice.silence
    assert str(advice).endswith(advice.silence)
    assert advice.silence in advice._repr_html_()


def test_names_of_the_user_are_escaped_in_a_notebook(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    run = build_case_run(tmp_path / "evil", Plant(slow_loader_plan("read"), loader={"dataset": evil}))
    advice: Advice = run.suggestions()
    assert any(evil in entry.change for entry in advice)
    assert "<script" not in advice._repr_html_()
    assert "&lt;script&gt;" in advice._repr_html_()


def test_a_rank_that_is_not_there_is_named(tmp_path: Path) -> None:
    run = collector.open_run(build_run(tmp_path / "one", RunPlan(steps=3)))
    with pytest.raises(collector.RunNotFoundError, match="has no rank 7"):
        run.suggestions(7)


def test_a_run_gives_a_tracker_the_figures_of_its_pages(tmp_path: Path) -> None:
    run = collector.open_run(build_run(tmp_path / "run", RunPlan()))
    found, (rank,) = run.metrics(), build_report(run)["ranks"]
    assert found["stepscope/steps"] == 40.0
    assert found["stepscope/step_seconds"] == pytest.approx(rank["steps"]["duration_ns"]["mean"] / 1e9)
    phases = [found[f"stepscope/phase_seconds/{name}"] for name in PHASE_NAMES]
    assert sum(phases) == pytest.approx(found["stepscope/step_seconds"])
    assert found["stepscope/data_wait_ratio"] == pytest.approx(0.4 / 64.0, rel=0.01)
    # What MLflow refuses in a name, and every tracker in a value.
    assert all(re.fullmatch(r"[\w./ -]+", name) and math.isfinite(value) for name, value in found.items())


def test_of_a_run_that_only_infers_the_batches_are_its_steps(tmp_path: Path) -> None:
    run = collector.open_run(make_inference(build_run(tmp_path / "run", RunPlan())))
    assert run.metrics()["stepscope/steps"] == 40.0


def test_a_run_without_steps_has_no_times(tmp_path: Path) -> None:
    run = collector.open_run(build_run(tmp_path / "run", RunPlan(steps=0)))
    assert run.metrics() == {"stepscope/steps": 0.0}


@pytest.mark.parametrize("name", ["trace.json", "a.b.c.json", "my.run.json.gz", "no_suffix"])
def test_a_trace_is_written_to_any_path(run: Run, tmp_path: Path, name: str) -> None:
    count = run.write_trace(tmp_path / name)
    data = (tmp_path / name).read_bytes()
    trace = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    assert len(trace["traceEvents"]) == count
    spans = run.spans()
    written = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert sorted(round(event["ts"] * 1000) for event in written) == sorted(spans.start)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("path", ["missing/folder/trace.json", ".", "bad\0name.json"])
def test_a_bad_path_writes_nothing(run: Run, tmp_path: Path, path: str) -> None:
    with pytest.raises(OutputError, match="cannot be written") as refused:
        run.write_trace(tmp_path / path)
    assert ".partial" not in str(refused.value)
    assert str(tmp_path / path) in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_frame_of_ones_own_is_written_and_what_overlaps_stands_on_its_own_row(tmp_path: Path) -> None:
    frame = pd.DataFrame({"start": [0, 10, 15, 40], "dur": [30, 10, 30, 5], "name": list("abcd"), "thread": "t"})
    collector.write_trace(frame, tmp_path / "mine.json")
    events = json.loads((tmp_path / "mine.json").read_text())["traceEvents"]
    rows = {event["name"]: event["tid"] for event in events if event["ph"] == "X"}
    assert rows["a"] == rows["b"] == rows["d"] != rows["c"]
    whole = pd.DataFrame({"start": [0], "dur": [30], "step": pd.array([pd.NA], pd.Int64Dtype()), "name": "a"})
    assert collector.write_trace(whole, tmp_path / "absent.json")
    with pytest.raises(OptionError, match="no column 'dur'"):
        collector.write_trace(frame.drop(columns="dur"), tmp_path / "other.json")


def test_flows_link_launches_to_kernels(device_run: Run, tmp_path: Path) -> None:
    device_run.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    ends = {phase: {e["id"]: e["ts"] for e in events if e["ph"] == phase} for phase in "sf"}
    assert len(ends["s"]) > 100
    assert ends["s"].keys() == ends["f"].keys()
    assert np.mean([ends["s"][i] <= ends["f"][i] for i in ends["s"]]) > 0.99
