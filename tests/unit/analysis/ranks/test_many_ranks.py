"""Runs of very many ranks: what was read stays read, and a rank that changed, broke or kills its reader is its own affair."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collector.format.run import RankRun, Run, open_run
from collector.format.schema import layout
from collector.format.schema.errors import TraceError
from collector.traces.workers import Here, Processes, Workers
from profiler_server.analysis.ranks import ranks as ranks_module
from profiler_server.analysis.ranks.ranks import (
    RankSummary,
    choose_calls,
    make_many,
    read_task,
    summarize_rank,
)
from profiler_server.analysis.ranks.stragglers import judge_ranks
from profiler_server.derive import many, records, stamps
from profiler_server.derive.many import KILLED, Task, Wanted, choose_processes
from profiler_server.derive.records import FOLDER, Records
from profiler_server.derive.store import find_store
from profiler_server.diagnosis.rank_sentences import describe_straggler
from profiler_server.facts.ranks import MOST_RANKS
from tests.support.jobs import JobPlan, write_job
from tests.support.must import must
from tests.support.ranks_page import show_ranks
from tests.support.waiting import wait_for

RANKS, SLOW = 48, 37
FILE = "rank"
Compute = Callable[[RankRun, int], RankSummary]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of more ranks than are read for each request; nothing of it is kept yet."""
    plan = JobPlan(ranks=RANKS, steps=12, slow=(SLOW,), slow_frac=0.3, ranks_per_host=8)
    return write_job(tmp_path_factory.mktemp("job") / "run", plan)


@pytest.fixture
def run(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A copy of the run, whose files are looked at each time."""
    monkeypatch.setattr(stamps, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(ranks_module, "FEW_RANKS", 8)
    yield open_run(shutil.copytree(job, tmp_path / "run"))
    find_store().choose_workers = None


class Counter:
    """Reads ranks as a server does that has just been started, and notes which."""

    def __init__(self) -> None:
        self.ranks: list[int] = []

    def compute(self, rank: RankRun, number: int) -> RankSummary:
        self.ranks.append(rank.rank)
        return summarize_rank(rank, number)

    def read(self, run: Run) -> tuple[RankSummary, ...]:
        return make_many(self.compute).read(want(run))


def want(run: Run) -> Wanted[RankSummary]:
    return Wanted(run, run.ranks, choose_calls(len(run.ranks)))


def name_slowest(ranks: Sequence[RankSummary]) -> str:
    return describe_straggler(judge_ranks(ranks))


def test_the_next_server_reads_no_rank_again_and_says_the_same(run: Run) -> None:
    first, second = Counter(), Counter()
    before, after = first.read(run), second.read(run)
    assert (len(first.ranks), second.ranks) == (RANKS, [])
    assert f"Rank {SLOW} holds {RANKS - 1} others up" in name_slowest(before)
    assert name_slowest(after) == name_slowest(before)
    one, same = before[3], after[3]
    assert one.calls is not None
    assert same.calls is not None
    for kept, own in ((same.together.parts_ns, one.together.parts_ns), (same.calls.start_ns, one.calls.start_ns)):
        assert kept.dtype == own.dtype
        assert np.array_equal(kept, own)
    assert (same.phases_ns, same.host, same.own_ns) == (one.phases_ns, one.host, one.own_ns)


def test_a_rank_that_changed_is_read_again_by_itself(run: Run) -> None:
    Counter().read(run)
    steps = layout.table_file(layout.rank_path(run.path, 5), "steps")
    shutil.copy(layout.table_file(layout.rank_path(run.path, 6), "steps"), steps)
    later = Counter()
    later.read(run)
    assert later.ranks == [5]


def test_a_server_that_knows_the_ranks_sees_one_change(run: Run) -> None:
    counter = Counter()
    server = make_many(counter.compute)
    before = server.read(want(run))
    assert server.read(want(run)) is before
    os.utime(layout.table_file(layout.rank_path(run.path, 5), "steps"), ns=(1, 1))
    after = server.read(want(run))
    assert counter.ranks[RANKS:] == [5]
    assert after[4] is before[4]


def test_kept_files_that_are_damaged_or_forged_are_read_anew(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Counter().read(run)
    cut = layout.rank_path(run.path, 2) / FOLDER / FILE
    cut.write_bytes(cut.read_bytes()[:-7])
    forged = replace(ranks[4], together=replace(ranks[4].together, step=ranks[4].together.step[:3]))
    number = want(run).number
    Records[RankSummary](FILE, RankSummary).write(run.rank(4), (stamps.stamp_rank(run.path, 4), number), forged)
    later = Counter()
    found = later.read(run)
    assert later.ranks == [2, 4]
    assert name_slowest(found) == name_slowest(ranks)
    again = Counter()
    again.read(run)
    assert again.ranks == []
    monkeypatch.setattr(records, "digest_code", lambda: "another version")
    again.read(run)
    assert len(again.ranks) == RANKS


def test_broken_short_and_missing_ranks_keep_no_other_from_being_judged(run: Run) -> None:
    layout.table_file(layout.rank_path(run.path, 1), "steps").write_bytes(b"PAR1 no table")
    layout.rank_file(run.path, 2).write_text("{", encoding="utf-8")
    shutil.rmtree(layout.rank_path(run.path, 3))
    layout.table_file(layout.rank_path(run.path, 4), "collectives").unlink()

    def compute(rank: RankRun, number: int) -> RankSummary:
        if rank.rank == 6:
            raise ZeroDivisionError("a number that nobody thought of")
        return summarize_rank(rank, number)

    ranks = make_many(compute).read(want(run))
    assert [rank.rank for rank in ranks if rank.reason] == [1, 2, 6]
    assert "ZeroDivisionError: a number that nobody thought of" in ranks[5].reason
    assert f"Rank {SLOW} holds" in name_slowest(ranks)


def read_or_die_once(task: Task) -> list[RankSummary]:
    """Read half of a task, then end as if the system had killed this process; the second time read all of it."""
    mark = task.run_path / "killed"
    if task.ranks[0] == 32 and not mark.exists():
        read_task(replace(task, ranks=task.ranks[:8]))
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return read_task(task)


def test_a_killed_process_costs_a_retry_of_its_ranks(run: Run) -> None:
    find_store().choose_workers = lambda ranks: Processes(1)
    ranks = make_many(read=read_or_die_once).read(want(run))
    assert (run.path / "killed").exists()
    assert len(ranks) == RANKS
    assert not any(rank.reason for rank in ranks)
    assert f"Rank {SLOW} holds" in name_slowest(ranks)
    later = Counter()
    later.read(run)
    assert later.ranks == []


class Killed:
    """Workers that are killed whenever they read rank 40."""

    are_here = False
    helpers = 0

    def __init__(self, jobs: int = 2, stop: object = None) -> None:
        self.jobs = jobs

    def run(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], on_done: Callable[[int], None]
    ) -> Iterator[Any]:
        for task in tasks:
            if 40 in task.ranks:
                raise TraceError("3 processes were killed")
            yield function(task)


def test_a_rank_that_kills_whoever_reads_it_is_found_and_left_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "Processes", Killed)
    workers: Workers = Killed()
    find_store().choose_workers = lambda ranks: workers
    ranks = make_many().read(want(run))
    assert {rank.rank: rank.reason for rank in ranks if rank.reason} == {40: KILLED}


def test_a_page_shows_the_ranks_that_are_read_and_names_nobody_before_all_are(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()

    def compute(rank: RankRun, number: int) -> RankSummary:
        if rank.rank >= 40:
            goes_on.wait()
        return ranks_module._read_summary(rank, number)

    monkeypatch.setattr(many, "PATIENCE_S", 0.01)
    monkeypatch.setattr(ranks_module, "_MANY", make_many(compute))
    try:
        wait_for(lambda: show_ranks(run).progress == f"40 of {RANKS} ranks are read.")
        shown = must(show_ranks(run).comparison)
        assert (shown.table.total, shown.what_if) == (40, None)
        assert str(SLOW) not in shown.sentence
        assert "holds 1" not in shown.sentence
    finally:
        goes_on.set()
    whole = wait_for(lambda: None if (page := show_ranks(run)).progress else page.comparison)
    assert whole.sentence.startswith(f"Rank {SLOW} holds {RANKS - 1} others up")
    assert whole.table.total == RANKS


def test_a_rank_that_stops_recording_is_seen_though_no_file_changes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = {0, 1}
    monkeypatch.setattr(RankRun, "state", property(lambda rank: "recording" if rank.rank in recording else "crashed"))
    monkeypatch.setattr(many, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(many, "REST", 0.0)
    server = make_many()
    assert {rank.state for rank in server.read(want(run))} == {"recording", "crashed"}
    recording.clear()
    assert {rank.state for rank in server.read(want(run))} == {"crashed"}


def test_more_ranks_than_are_looked_at_are_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    many = tuple(range(MOST_RANKS + 10))
    wait_for(lambda: not show_ranks(run).progress)
    shown = must(show_ranks(run, ranks=many).comparison)
    (note,) = [note for note in shown.notes if "are looked at" in note]
    assert note.startswith(f"Only the first {MOST_RANKS:,} of {len(many):,} ranks are looked at")


def test_reading_ends_when_the_server_does(run: Run) -> None:
    begun: list[int] = []
    goes_on = threading.Event()

    def compute(rank: RankRun, number: int) -> RankSummary:
        begun.append(rank.rank)
        goes_on.wait()
        return summarize_rank(rank, number)

    server = make_many(compute)
    assert not server.peek(want(run)).is_whole
    wait_for(lambda: begun)
    stopping = threading.Thread(target=find_store().close)
    stopping.start()
    wait_for(find_store().stopping.is_set)
    goes_on.set()
    stopping.join(120)
    assert (begun, find_store().stopping.is_set()) == ([0], False)
    wait_for(lambda: server.peek(want(run)).is_whole)


def count_jobs(ranks: int) -> int:
    found = choose_processes(ranks)
    assert isinstance(found, Processes)
    return found.jobs


def test_processes_are_started_where_cores_are_idle_and_ranks_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    load = [0.0]
    monkeypatch.setattr(many, "count_cores", lambda: 8)
    monkeypatch.setattr(many, "READER_BYTES", 1)
    monkeypatch.setattr(os, "getloadavg", lambda: (load[0], 0.0, 0.0))
    assert isinstance(choose_processes(200), Here)
    assert count_jobs(4096) == 8
    load[0] = 5.2
    assert count_jobs(4096) == 3
    load[0] = 20.0
    assert isinstance(choose_processes(4096), Here)
