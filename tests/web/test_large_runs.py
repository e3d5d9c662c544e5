"""Pages of a rank with more slices than a page waits for: they answer at once, and show the figures when they are there."""

from __future__ import annotations

import errno
import re
import shutil
from pathlib import Path

import pytest

from collector.traces.importing import import_trace
from profiler_server.derive import background, derived
from profiler_server.timeline import cache as timeline_cache
from tests.support.asking import Asker
from tests.support.traces import training_steps, write_trace
from tests.support.waiting import wait_for

PAGES = ("", "device")


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asker:
    """A server with the run `large`, which counts as such."""
    trace = write_trace(tmp_path / "trace.json", training_steps(6, 20_000.0))
    import_trace(trace, tmp_path / "base/large")
    monkeypatch.setattr(derived, "AT_ONCE_SLICES", 10)
    return Asker(tmp_path / "base")


def ask_until_there(asker: Asker, path: str) -> str:
    return wait_for(lambda: "" if "data-pending" in (text := asker.ask(path).text) else text)


def read_parts(text: str) -> str:
    """Return the main part of a page without what differs between two places of a run."""
    return re.sub(r"/static/\w+/|\S+/(base|copy)/", "", text[text.index("<main") : text.index("</main>")])


@pytest.mark.parametrize("page", PAGES)
def test_a_page_answers_before_its_figures_are_there(large: Asker, page: str) -> None:
    first = large.ask(f"/runs/large/{page}")
    assert first.status_code == 200
    assert "data-pending" in first.text
    assert re.search(r"being judged|Being computed", first.text)
    assert "Being computed" not in ask_until_there(large, f"/runs/large/{page}")


def test_the_figures_are_those_of_a_rank_that_is_not_large(
    large: Asker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(tmp_path / "base", tmp_path / "copy")
    later = [read_parts(ask_until_there(large, f"/runs/large/{page}")) for page in PAGES]
    monkeypatch.setattr(derived, "AT_ONCE_SLICES", 1_000_000)
    small = Asker(tmp_path / "copy")
    assert later == [read_parts(small.ask(f"/runs/large/{page}").text) for page in PAGES]


def test_a_new_server_shows_them_at_once(large: Asker, tmp_path: Path) -> None:
    for page in PAGES:
        ask_until_there(large, f"/runs/large/{page}")
    again = Asker(tmp_path / "base").ask("/runs/large/device").text
    assert 'data-part="device" data-pending' not in again


def test_the_report_is_whole_at_the_first_request(large: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "HEAD_START_S", 60.0)  # nothing comes in the background
    report = large.ask("/api/v1/runs/large/report").json()
    assert report["ranks"][0]["device"]["utilization_frac"] > 0
    assert report["ranks"][0]["categories"]["kernel"] > 0


def test_a_damaged_table_is_told_where_its_figures_would_be(large: Asker, tmp_path: Path) -> None:
    path = tmp_path / "base/large/profiler/rank_0/slices.parquet"
    raw = bytearray(path.read_bytes())
    raw[4:200] = bytes(196)  # the footer still counts the rows
    path.write_bytes(raw)
    text = ask_until_there(large, "/runs/large/device")
    assert "The breakdown cannot be made" in text
    assert "is damaged" in text


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), ("No space left on device", "make room")),
        (ValueError("odd level"), ("ValueError: odd level", "profiler/rank_0")),
        (MemoryError(), ("MemoryError", "profiler/rank_0")),
    ],
)
def test_a_timeline_that_cannot_be_prepared_says_why_and_what_to_do(
    large: Asker, monkeypatch: pytest.MonkeyPatch, failure: Exception, words: tuple[str, ...]
) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(timeline_cache, "LARGE_SLICES", 10)
    with monkeypatch.context() as failing:
        failing.setattr(timeline_cache, "build_timeline", fail)
        assert "Preparing the timeline" in large.ask("/runs/large/timeline").text
        text = ask_until_failed(large, "/runs/large/timeline", "The timeline cannot be prepared")
        assert all(word in text for word in (*words, "Reload the page"))
        data = ask_until_failed(large, "/api/v1/runs/large/timeline/meta", "error")
        assert all(word in data for word in words)
        assert "Traceback" not in text + data
        # What still fails in the background ends before the mend.
        ask_until_failed(large, "/api/v1/runs/large/timeline/meta", "error")
    wait_for(lambda: large.ask("/api/v1/runs/large/timeline/meta").status_code == 200)
    assert "cannot be prepared" not in large.ask("/runs/large/timeline").text


def ask_until_failed(asker: Asker, path: str, words: str) -> str:
    return wait_for(lambda: text if words in (text := asker.ask(path).text) else "")
