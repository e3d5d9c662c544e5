"""Tokens per second with and without padding, on every face."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.format.rank import read_step_rows
from collector.notebook.run import Run, open_run
from collector.server import measure_use
from profiler_server.analysis.steps.tokens import measure_tokens
from profiler_server.facts.useful import TokenRate
from profiler_server.report import build_report
from profiler_server.report.text import render_text
from tests.support.cases import Plant, build_case_run
from tests.support.host_cases import called
from tests.support.must import must
from tests.support.overall_page import show, stat

COUNTED = {"tokens": 20_000, "token_rows": 160, "real": 12_000, "trained": 9_000}


def _build(path: Path, *entries: dict[str, Any]) -> Run:
    calls = [entry for each in entries for entry in called(**each)["calls"]]
    return build_case_run(path / "run", Plant(manifest={"facts": {"calls": calls}}))


def _measure(run: Run) -> TokenRate | None:
    return measure_tokens(run.rank(0), read_step_rows(run.rank(0)).steps)


def test_the_rate_is_that_of_the_samples_times_their_tokens(tmp_path: Path) -> None:
    rate = must(_measure(_build(tmp_path, COUNTED)))
    assert (rate.real_frac, rate.trained_frac, rate.per_sample, rate.looks) == (0.6, 0.45, 125.0, 5)
    assert rate.per_s == pytest.approx(125 * 500, rel=0.01)  # 32 samples in 64 ms
    assert rate.real_per_s == pytest.approx(0.6 * 125 * 500, rel=0.01)


def test_the_batches_of_the_loader_come_before_what_a_model_gets(tmp_path: Path) -> None:
    loader = {**COUNTED, "model": "DataLoader", "tokens": 10_000, "real": 5_000, "trained": -1}
    rate = must(_measure(_build(tmp_path, COUNTED, loader)))
    assert (rate.model, rate.real_frac, rate.trained_frac) == ("DataLoader", 0.5, None)


@pytest.mark.parametrize(
    "entry", [{}, {**COUNTED, "token_rows": 0}, {**COUNTED, "tokens": -4}], ids=["older run", "no rows", "damaged"]
)
def test_without_named_tensors_no_rate_is_known(entry: dict[str, Any], tmp_path: Path) -> None:
    run = _build(tmp_path, entry)
    assert _measure(run) is None
    assert "Useful tokens" not in [figure.label for figure in must(show(run.path).stats.body)]


def test_every_face_shows_it(tmp_path: Path) -> None:
    run = _build(tmp_path, COUNTED)
    page, report = show(run.path), build_report(run)
    assert stat(page, "Useful tokens") == "60.0 %"
    said = "are no padding, 60.0 %; 45.0 % count in the loss; 5 steps looked at"
    assert said in next(figure.note for figure in must(page.stats.body) if figure.label == "Useful tokens")
    assert said in render_text(report, run)
    assert report["ranks"][0]["tokens"]["real_frac"] == 0.6


def test_a_tracker_gets_what_is_known(tmp_path: Path) -> None:
    run = _build(tmp_path, COUNTED)
    found = run.metrics()
    assert found["stepscope/useful_token_ratio"] == 0.6
    assert found["stepscope/useful_tokens_per_second"] == pytest.approx(37_500, rel=0.01)
    assert found["stepscope/samples_per_second"] == pytest.approx(500, rel=0.01)
    assert set(measure_use(open_run(run.path).rank(0))) == {
        "samples_per_second",
        "tokens_per_second",
        "useful_tokens_per_second",
        "useful_token_ratio",
        "first_step_seconds",
    }
