"""The pages of a job that did not end well: the header and the first line say so, and nothing above them says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.schema.manifest import Warn
from tests.support.asking import Asker
from tests.support.live import edit_rank
from tests.support.runs import RunPlan, build_run

LOST = "RuntimeError: Connection closed by peer"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job of two ranks: the first lost its connection."""
    path = build_run(tmp_path / "broken", RunPlan(ranks=2, operators=False))
    notes = (Warn("ended_by", f"The script was ended after 40 steps by {LOST}"), Warn("no_device", "planted note"))
    edit_rank(path, 0, facts={"ended_by": LOST}, warnings=notes)
    return path


def test_the_header_says_how_the_job_ended_on_every_rank(job: Path) -> None:
    edit_rank(job, 1, facts={"ended_by": "ValueError: planted"})
    asker = Asker(job.parent)
    for page in ("", "ranks", "?rank=1", "steps"):
        text = asker.ask(f"/runs/broken/{page}").text
        assert '<span class="badge badge-failed">Failed</span>' in text.split("</header>")[0], page


@pytest.mark.parametrize(("ended_unix_ns", "label"), [(None, "Crashed"), (1, "Crashed, recovered")])
def test_the_header_of_a_rank_that_lost_another_says_that_the_job_crashed(
    job: Path, ended_unix_ns: int | None, label: str
) -> None:
    edit_rank(job, 1, state="crashed", ended_unix_ns=ended_unix_ns, heartbeat_unix_ns=1)
    text = Asker(job.parent).ask("/runs/broken/").text
    assert f'<span class="badge badge-crashed">{label}</span>' in text.split("</header>")[0]
    assert "This run ended before it was analysed." not in text


def test_no_note_on_the_end_of_a_rank_stands_above_the_end_of_the_job(job: Path) -> None:
    edit_rank(job, 1, facts={"ended_by": "ValueError: planted"})
    asker = Asker(job.parent)
    for page in ("", "ranks"):
        text = asker.ask(f"/runs/broken/{page}").text
        assert "by ValueError: planted (rank 1)" in text
        assert "planted note" in text
        assert "The script was ended" not in text
    assert "The script was ended" in asker.ask("/runs/broken/steps").text


def test_a_training_that_was_stopped_by_hand_keeps_its_note_and_its_state(tmp_path: Path) -> None:
    path = build_run(tmp_path / "alone", RunPlan(operators=False))
    note = Warn("ended_by", "The script was ended after 40 steps by KeyboardInterrupt")
    edit_rank(path, 0, facts={"ended_by": "KeyboardInterrupt"}, warnings=(note,))
    text = Asker(tmp_path).ask("/runs/alone/").text
    assert note.text in text
    assert "badge-complete" in text.split("</header>")[0]
