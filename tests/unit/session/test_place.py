"""Ranks of one launch that come to the same place at the same moment."""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
from multiprocessing.synchronize import Barrier
from pathlib import Path

import psutil
import pytest

from collector import Profiler
from collector.format.schema.errors import OutputError
from collector.format.schema.layout import events_path, find_ranks, profiler_path, run_file
from collector.notes import Notes, write_notes
from collector.session.place import Launch, abandon_place, claim_place

pytestmark = pytest.mark.usefixtures("alone")

RANKS, ROUNDS = 4, 25


def claim_all(rank: int, base: Path, barrier: Barrier) -> None:
    for number in range(ROUNDS):
        barrier.wait(60)
        claim_place(base / str(number), Launch(rank, RANKS, "launch", None, None, {}))


@pytest.mark.parametrize("has_earlier", [False, True])
def test_ranks_that_come_at_once_share_the_run(tmp_path: Path, has_earlier: bool) -> None:
    """Where there is an earlier run, one of them sets it aside, and none does that with what another has begun."""
    if has_earlier:
        for number in range(ROUNDS):
            place = claim_place(tmp_path / str(number), Launch(0, 1, "before", None, None, {}))
            os.utime(events_path(place.rank_folder), (0, 0))
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(RANKS)
    ranks = [context.Process(target=claim_all, args=(rank, tmp_path, barrier)) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
    assert [process.exitcode for process in ranks] == [0] * RANKS
    found = {find_ranks(tmp_path / str(number)) for number in range(ROUNDS)}
    assert found == {tuple(range(RANKS))}
    earlier = {len(list((tmp_path / str(number)).glob("earlier/*"))) for number in range(ROUNDS)}
    assert earlier == {int(has_earlier)}


def test_a_run_that_another_job_has_just_begun_is_not_set_aside(tmp_path: Path) -> None:
    """The other's recorder starts for a second or two; until then nothing is locked."""
    place = claim_place(tmp_path, Launch(0, 2, "one", None, None, {}))
    other = Launch(0, 2, "other", None, None, {})
    lives = psutil.Process(os.getppid())
    notes = Notes(0, lives.pid, lives.create_time(), socket.gethostname(), 0, 0, 0, 0)
    starts = threading.Timer(0.3, write_notes, (notes, place.rank_folder))
    starts.start()
    with pytest.raises(OutputError, match="is being recorded by another process"):
        claim_place(tmp_path, other)
    starts.join()
    with pytest.raises(OutputError, match="choose another output_path"):
        claim_place(tmp_path, other)
    notes.pid = 2**22 + 1
    write_notes(notes, place.rank_folder)
    assert claim_place(tmp_path, other).set_aside is not None


def test_a_place_that_is_given_back_leaves_no_folder_that_was_not_there(tmp_path: Path) -> None:
    launch = Launch(0, 1, "", None, None, {})
    (tmp_path / "old").mkdir()
    for name in ("old", "new"):
        abandon_place(claim_place(tmp_path / name, launch))
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_an_earlier_run_in_the_same_place_is_said_to_have_been_moved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        Profiler(tmp_path / "run", window=None, resources=False).analyse()
    told = [line for line in capsys.readouterr().err.splitlines() if "was moved to" in line]
    assert told == [
        f"stepscope: the earlier run in {tmp_path / 'run'} was moved to {next((tmp_path / 'run/earlier').iterdir())}"
    ]


def test_a_pipe_where_the_manifest_goes_holds_nobody_up(tmp_path: Path) -> None:
    profiler_path(tmp_path).mkdir()
    os.mkfifo(run_file(tmp_path))
    assert claim_place(tmp_path, Launch(0, 1, "", None, None, {})).rank == 0
    assert run_file(tmp_path).is_file()


def claim_again(path: Path, times: int = 1) -> None:
    """Begin new runs in a place, each setting the one before aside."""
    for number in range(times):
        place = claim_place(path, Launch(0, 1, str(number), None, None, {}))
        os.utime(events_path(place.rank_folder), (0, 0))


def test_folders_of_others_among_runs_that_were_set_aside_stay(tmp_path: Path) -> None:
    for name in ("20200101-000000", "20200102-000000-1", "notes"):
        (tmp_path / "earlier" / name).mkdir(parents=True)
        (tmp_path / "earlier" / name / "thesis.txt").write_text("years")
    claim_again(tmp_path, 6)
    names = {path.parent.name for path in (tmp_path / "earlier").glob("*/thesis.txt")}
    assert names == {"20200101-000000", "20200102-000000-1", "notes"}
    assert len(list((tmp_path / "earlier").glob("*/profiler"))) == 3


def make_victim(folder: Path) -> list[Path]:
    (folder / "20200101-000000/profiler").mkdir(parents=True)
    (folder / "20200101-000000/profiler/run.json").write_text("{}")
    return sorted(folder.rglob("*"))


def test_no_run_is_set_aside_through_a_link(tmp_path: Path) -> None:
    claim_again(tmp_path / "run")
    before = make_victim(tmp_path / "victim")
    (tmp_path / "run/earlier").symlink_to(tmp_path / "victim")
    with pytest.raises(OutputError, match="the link earlier"):
        claim_again(tmp_path / "run", 5)
    assert sorted((tmp_path / "victim").rglob("*")) == before


def test_a_link_in_the_place_of_a_run_is_set_aside_and_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    before = make_victim(tmp_path / "victim")
    (tmp_path / "run/profiler").symlink_to(tmp_path / "victim")
    claim_again(tmp_path / "run", 6)
    assert sorted((tmp_path / "victim").rglob("*")) == before
    assert not (tmp_path / "run/profiler").is_symlink()


def test_a_folder_that_another_put_in_the_place_of_a_rank_is_not_given_back(tmp_path: Path) -> None:
    place = claim_place(tmp_path / "run", Launch(0, 1, "", None, None, {}))
    place.rank_folder.rename(tmp_path / "aside")
    place.rank_folder.mkdir()
    (place.rank_folder / "thesis.txt").write_text("years")
    abandon_place(place)
    assert (place.rank_folder / "thesis.txt").read_text() == "years"
