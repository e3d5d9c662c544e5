"""Every page of a run that was really recorded: the CNN on PNG files, read by two workers, with evaluation inside."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from collector.format.run import open_run
from profiler_server.diagnosis.judging import diagnose
from tests.support import forking
from tests.support.asking import Asker, read_words

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples/digits_cnn.py"
STEPS = 47
"""1,497 pictures in batches of 32."""
WORDS = {
    "": ("DigitFiles", "100.0 %", "Step trace", "Operators", "Data pipeline", "Timeline"),
    "steps?step=20": ("Step 20", "SmallCnn"),
    f"steps?step={STEPS + 1}": (f"1 to {STEPS}", "Average step"),
    "operators?group=operators&q=CONV": ("aten::mkldnn_convolution",),
    "data?tab=processing": ("Rotate", "Resize", "ToTensor", "Worker 0", "Worker 1"),
    "data?tab=interval": ("empty in",),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base dir of a run `digits`, recorded by the example script as a user would run it."""
    base = tmp_path_factory.mktemp("recorded")
    command = [sys.executable, str(SCRIPT), "--output", str(base / "digits"), "--epochs", "1"]
    forking.run(command, cwd=tmp_path_factory.mktemp("pictures")).check_returncode()
    return base


def test_pages_list_report_and_export_tell_what_was_recorded(base: Path) -> None:
    asker, run = Asker(base), open_run(base / "digits")
    assert int((run.frame("steps").kind == "train").sum()) == STEPS
    assert "badge-complete" in asker.ask("/").text
    for address, words in WORDS.items():
        text = read_words(asker.ask(f"/runs/digits/{address}").text)
        assert [word for word in words if word not in text] == [], address
    limit = diagnose(run, 0).limit  # which one depends on how busy the machine was
    assert limit in read_words(asker.ask("/runs/digits/").text)
    found = asker.ask("/api/v1/runs/digits/operators?q=CONV").json()
    assert not any("max_pool2d" in row["name"] for row in found["rows"])
    assert asker.ask("/api/v1/runs/digits/timeline/search?q=aten::mkldnn_convolution").json()["count"] > 0
    report = asker.ask("/api/v1/runs/digits/report").json()
    assert report["run"]["state"] == "complete"
    phases = report["ranks"][0]["phases"]
    assert sum(phase["share_frac"] for phase in phases) == pytest.approx(1.0, abs=1e-9)
    mean = report["ranks"][0]["steps"]["duration_ns"]["mean"]
    assert sum(phase["mean_ns"] for phase in phases) == pytest.approx(mean, abs=1.0)


def test_every_column_of_the_steps_is_written(base: Path) -> None:
    """A column that is declared and never written is null for ever, and no page says so."""
    steps = open_run(base / "digits").rank().table("steps")
    unwritten = {name for name in steps.column_names if steps[name].null_count == steps.num_rows}
    assert unwritten == {"communication_total_ns", "communication_end_ns", "device_ns"}  # one process, no accelerator
