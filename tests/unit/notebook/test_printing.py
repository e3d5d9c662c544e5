"""Figures of an opened run, and what is printed of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import collector
from collector.format.schema.errors import TableMissingError, UsageError
from collector.notebook.run import Run, open_run
from tests.support.recording import record as record_loop
from tests.support.runs import RunPlan, build_run


@pytest.mark.parametrize("kind", ["steps", "phases", "operators", "queues"])
def test_figures_are_plotly_figures(run: Run, kind: str) -> None:
    objects = pytest.importorskip("plotly.graph_objects")
    figure = run.figure(kind)
    assert isinstance(figure, objects.Figure)
    assert figure.data
    assert json.loads(figure.to_json())["data"]


@pytest.mark.parametrize("missing", ["plotly.graph_objects", "profiler_server.pages.steps.charts"])
def test_a_package_that_figures_lack_is_named(run: Run, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly.graph_objects")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match=rf"figures need {missing.partition('.')[0]}.*'stepscope\[notebook\]'"):
        run.figure()


def test_a_figure_without_rows_says_so(tmp_path: Path) -> None:
    pytest.importorskip("plotly.graph_objects")
    run = record_loop(tmp_path, lambda: None).run
    for kind in ("steps", "phases"):
        (note,) = run.figure(kind).layout.annotations
        assert note.text == "No training step and no evaluation batch was recorded."
    assert not open_run(build_run(tmp_path / "trained")).figure("steps").layout.annotations


def test_ranges_are_spans_and_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def loop() -> None:
        with collector.record("outer"), collector.record("inner"):
            pass

    run = record_loop(tmp_path, loop).run
    spans = run.spans(categories="range").set_index("name")
    assert spans.parent_span_id["inner"] == spans.span_id["outer"]
    run.print_ranges()
    assert "outer/inner" in capsys.readouterr().out


def test_empty_data_is_a_plain_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = record_loop(tmp_path, lambda: None).run
    assert run.spans(categories="kernel").empty
    assert run.device_executions().empty
    run.print_each_step()
    run.print_device_executions()
    run.print_ranges()
    printed = capsys.readouterr().out
    assert "No training step and no evaluation batch was recorded." in printed
    assert "No device work was recorded" in printed
    assert "This run has no ranges table." in printed
    with pytest.raises(TableMissingError):
        run.operator("aten::mm")


def test_each_step_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    open_run(build_run(tmp_path / "run", RunPlan(steps=5))).print_each_step()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 5
    assert lines[1].split()[:3] == ["step", "total", "Gap"]
