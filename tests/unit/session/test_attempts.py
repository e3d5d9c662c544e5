"""A job that its launcher starts again: its runs are attempts of one job, and none of them is removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collector.format.attempts import list_attempts
from collector.format.run import open_run
from collector.format.schema.layout import EARLIER_FOLDER, events_path
from collector.session.place import MOST_EARLIER, Launch, Place, claim_place, find_job
from collector.session.profiler import Profiler

pytestmark = pytest.mark.usefixtures("alone")


def launch(path: Path, job: str, restarts: int, requeues: int = 0) -> Place:
    """Claim a place and leave it as a process does that has died at once."""
    name = f"{job}:{restarts}:{len(list(path.glob(f'{EARLIER_FOLDER}/*')))}"
    place = claim_place(path, Launch(0, 1, name, None, None, {}, job, requeues, restarts))
    os.utime(events_path(place.rank_folder), (0, 0))
    return place


def read_numbers(path: Path) -> list[int]:
    return [attempt.number for attempt in list_attempts(path)]


def test_the_runs_of_a_job_that_was_started_again_are_its_attempts(tmp_path: Path) -> None:
    launch(tmp_path, "", 0)
    for restarts in range(3):
        launch(tmp_path, "job", restarts)
    attempts = list_attempts(tmp_path)
    assert [attempt.number for attempt in attempts] == [1, 2, 3]
    assert attempts[-1].path == tmp_path
    first = open_run(attempts[0].path)
    assert (first.manifest.job_id, first.manifest.attempt) == ("job", 1)
    assert list_attempts(attempts[0].path) == attempts


def test_a_job_that_was_started_once_has_no_attempts(tmp_path: Path) -> None:
    for job in ("", "one", "two"):
        launch(tmp_path, job, 0)
        assert list_attempts(tmp_path) == ()


def test_launches_of_one_name_are_jobs_of_their_own(tmp_path: Path) -> None:
    for restarts in (0, 1, 0, 1):
        launch(tmp_path, "job", restarts)
    assert read_numbers(tmp_path) == [1, 2]
    launch(tmp_path, "job", 0)
    assert read_numbers(tmp_path) == []


def test_an_attempt_counts_on_where_a_launcher_begins_to_count_anew(tmp_path: Path) -> None:
    """SLURM requeues a job of torchrun: the one counts 1, the other 0 again."""
    for requeues, restarts in ((0, 0), (0, 2), (1, 0), (1, 1)):
        launch(tmp_path, "job", restarts, requeues)
    assert read_numbers(tmp_path) == [1, 3, 4, 5]


def test_trainings_of_one_batch_that_was_requeued_are_jobs_of_their_own(tmp_path: Path) -> None:
    """SLURM's count stays what it is for all that the batch runs."""
    launch(tmp_path, "job", 0)
    launch(tmp_path, "job", 0, requeues=1)
    assert read_numbers(tmp_path) == [1, 2]
    for _ in range(MOST_EARLIER + 2):
        assert launch(tmp_path, "job", 0, requeues=1).continued == 0
        assert read_numbers(tmp_path) == []
    assert len(list((tmp_path / EARLIER_FOLDER).iterdir())) == MOST_EARLIER
    launch(tmp_path, "job", 1, requeues=1)
    assert read_numbers(tmp_path) == [1, 2]


def test_only_a_run_of_the_same_job_is_called_an_attempt_when_it_is_moved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Profiler(tmp_path / "run", window=None, resources=False).analyse()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    for restarts in ("1", "3"):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
        Profiler(tmp_path / "run", window=None, resources=False).analyse()
    told = [line.partition(" in ")[0] for line in capsys.readouterr().err.splitlines() if "was moved to" in line]
    assert told == ["stepscope: the earlier run", "stepscope: attempt 2 of this job"]


def test_no_attempt_of_the_job_that_is_tried_is_removed(tmp_path: Path) -> None:
    for restarts in range(MOST_EARLIER + 3):
        launch(tmp_path, "job", restarts)
    assert read_numbers(tmp_path) == list(range(1, MOST_EARLIER + 4))
    for number in range(MOST_EARLIER + 1):
        launch(tmp_path, f"other{number}", 0)
    assert len(list((tmp_path / EARLIER_FOLDER).iterdir())) == MOST_EARLIER


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, ("", 0, 0)),
        ({"MASTER_ADDR": "a", "MASTER_PORT": "1"}, ("", 0, 0)),
        ({"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": "2", "MASTER_PORT": "1"}, (":x", 0, 2)),
        ({"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, (":none:a:1", 0, 0)),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1", "MASTER_ADDR": "a"}, ("7::a:", 1, 0)),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "²", "TORCHELASTIC_RUN_ID": "x"}, ("7:x", 0, 0)),
    ],
)
def test_what_a_launcher_says_names_the_job_and_counts_its_restarts(
    environment: dict[str, str], told: tuple[str, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert find_job() == told
