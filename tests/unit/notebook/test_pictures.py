"""Charts as pictures: their colours are there, with and without data."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import collector
from collector.notebook.run import Run
from tests.support.runs import RunPlan, build_run, slow_loader_plan


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return collector.open_run(build_run(tmp_path_factory.mktemp("runs") / "digits", slow_loader_plan("transform")))


def draw(run: Run, kind: str) -> dict[str, int]:
    """Return how many pixels have each colour."""
    shown = run.figure(kind)._repr_mimebundle_()
    picture = Image.open(io.BytesIO(base64.b64decode(shown["image/png"]))).convert("RGB")
    colors, counts = np.unique(np.asarray(picture).reshape(-1, 3), axis=0, return_counts=True)
    return {"#" + bytes(color).hex(): count for color, count in zip(colors.tolist(), counts.tolist(), strict=True)}


@pytest.mark.parametrize(
    ("kind", "color"), [("steps", "#1b1f24"), ("phases", "#b68e0f"), ("operators", "#111eae"), ("queues", "#c4161c")]
)
def test_a_picture_has_the_colours_of_the_chart(run: Run, kind: str, color: str) -> None:
    assert draw(run, kind).get(color, 0) > 20


def test_phases_take_the_area_of_their_time(run: Run) -> None:
    pixels = draw(run, "phases")
    metrics = run.metrics()
    ratio = metrics["stepscope/phase_seconds/data_wait"] / metrics["stepscope/phase_seconds/backward"]
    assert pixels["#b68e0f"] / pixels["#6f7ff5"] == pytest.approx(ratio, rel=0.1)


def test_a_chart_of_nothing_shows_its_message(tmp_path: Path) -> None:
    empty = collector.open_run(build_run(tmp_path / "empty", RunPlan(steps=0)))
    pixels = draw(empty, "steps")
    assert 0 < sum(count for color, count in pixels.items() if color != "#ffffff") < 20_000


def test_a_figure_loads_nothing_from_the_network(run: Run) -> None:
    figure = run.figure("steps")
    assert figure._repr_html_ is None
    assert figure._ipython_display_ is None
    assert "http" not in str(figure._repr_mimebundle_())


def test_a_terminal_shows_one_line_of_a_chart(run: Run) -> None:
    figure = run.figure("phases")
    assert figure._repr_mimebundle_()["text/plain"] == repr(figure) == "<Figure: digits, rank 0: phases>"
