"""Results of large ranks: cached beside them, computed in the background, and never in the way of the run."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from collector.format.intervals import Ints
from collector.format.run import RankRun, open_run
from collector.format.schema.errors import TableBrokenError
from profiler_server.derive import background
from profiler_server.derive import derived as module
from profiler_server.derive.derived import Derived, NotReady, derived
from profiler_server.derive.records import FOLDER
from tests.support.live import edit_rank
from tests.support.must import must
from tests.support.runs import RunPlan, build_run

FILE = "sum"


@dataclass(frozen=True)
class Sum:
    total: int
    parts: Ints


@dataclass
class Counter:
    """A computation that counts how often it is done."""

    calls: int = 0
    error: Exception | None = None

    def compute(self, rank: RankRun) -> Sum | None:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return Sum(7 + rank.rank, np.array([3, 4], np.int64))


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RankRun:
    """A rank that counts as large; the private folder lies in the test's own."""
    monkeypatch.setattr(module, "AT_ONCE_SLICES", 10)
    monkeypatch.setattr(background, "HEAD_START_S", 0.0)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    return open_run(build_run(tmp_path / "run")).rank()


Result = Derived[[RankRun], Sum | None]


def make(compute: Callable[[RankRun], Sum | None]) -> Result:
    """Make the result as a server does that has just been started."""
    return derived(file=FILE)(compute)


def wait_for(result: Result, rank: RankRun) -> Sum | None:
    deadline = time.monotonic() + 120
    while isinstance(found := result.peek(rank), NotReady):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def test_a_result_outlasts_the_server(rank: RankRun) -> None:
    counter = Counter()
    first, second = make(counter.compute)(rank), make(counter.compute).peek(rank)
    assert counter.calls == 1
    assert isinstance(second, Sum)
    assert (second.total, second.parts.tolist()) == (7, [3, 4])
    assert first is not None
    assert first.parts.dtype == second.parts.dtype


def test_a_page_does_not_wait_and_is_given_the_result_later(rank: RankRun) -> None:
    result = make(Counter().compute)
    later = result.peek(rank)
    assert isinstance(later, NotReady)
    assert later.pending
    found = must(wait_for(result, rank))
    assert found.total == 7


def test_nothing_is_written_for_a_rank_that_is_not_large(tmp_path: Path) -> None:
    small = open_run(build_run(tmp_path / "run")).rank()
    assert isinstance(make(Counter().compute).peek(small), Sum)
    assert not (small.folder / FOLDER).exists()


def test_a_file_that_changes_has_it_computed_anew(rank: RankRun) -> None:
    counter = Counter()
    make(counter.compute)(rank)
    steps = rank.folder / "steps.parquet"
    os.utime(steps, ns=(1, 1))
    make(counter.compute)(rank)
    assert counter.calls == 2


@pytest.mark.parametrize(
    "damage", [b"", b"\xc1", b"\x91" * 100_000, b"\x80", b"\x83\xa4code\xa0\xa5stamp\xa0\xa6result\x01"]
)
def test_what_cannot_be_decoded_is_computed_anew_and_replaced(rank: RankRun, damage: bytes) -> None:
    counter = Counter()
    make(counter.compute)(rank)
    file = rank.folder / FOLDER / FILE
    whole = file.read_bytes()
    file.write_bytes(damage)
    make(counter.compute)(rank)
    assert counter.calls == 2
    assert file.read_bytes() == whole


def test_a_pipe_in_the_place_of_the_file_holds_nobody(rank: RankRun) -> None:
    folder = rank.folder / FOLDER
    folder.mkdir()
    os.mkfifo(folder / FILE)
    assert isinstance(make(Counter().compute)(rank), Sum)


def test_a_folder_that_cannot_be_written_is_left_for_a_private_one(rank: RankRun, tmp_path: Path) -> None:
    (rank.folder / FOLDER).write_text("in the way")
    counter = Counter()
    make(counter.compute)(rank)
    make(counter.compute)(rank)
    assert counter.calls == 1
    private = tmp_path / f"stepscope-{os.getuid()}"
    assert private.stat().st_mode & 0o077 == 0
    assert [path.name for path in private.glob(f"*{FOLDER}/*")] == [FILE]


def test_a_private_folder_that_others_can_write_is_not_trusted(rank: RankRun, tmp_path: Path) -> None:
    (rank.folder / FOLDER).write_text("in the way")
    private = tmp_path / f"stepscope-{os.getuid()}"
    private.mkdir()
    private.chmod(0o777)
    counter = Counter()
    make(counter.compute)(rank)
    assert isinstance(make(counter.compute)(rank), Sum)
    assert counter.calls == 2
    assert list(private.iterdir()) == []


def test_what_fails_in_the_background_is_told_once_and_then_tried_again(rank: RankRun) -> None:
    counter = Counter(error=TableBrokenError("slices.parquet is damaged"))
    result = make(counter.compute)
    with pytest.raises(TableBrokenError, match="damaged"):
        wait_for(result, rank)
    counter.error = None
    assert isinstance(wait_for(result, rank), Sum)


def test_a_run_that_records_shows_what_was_known_and_leaves_no_file(rank: RankRun) -> None:
    run = build_run(rank.folder.parents[1], RunPlan(state="recording"))
    live = open_run(run).rank()
    counter = Counter()
    result = make(counter.compute)
    first = wait_for(result, live)
    edit_rank(run, events_lost=1)
    assert result.peek(open_run(run).rank()) is first
    assert not (live.folder / FOLDER).exists()


def test_a_rank_beyond_measure_is_refused(rank: RankRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SLICES", 10)
    later = make(Counter().compute).peek(rank)
    assert isinstance(later, NotReady)
    assert (later.pending, "stepscope report" in later.reason) == (False, True)
