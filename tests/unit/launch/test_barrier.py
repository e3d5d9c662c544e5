"""Processes of a benchmark that wait for each other, and do not wait for one that cannot come."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from collector.launch.barrier import BEGIN, MARK, VARIABLE, Barrier, find_barrier, make_room


def make_barriers(folder: Path, count: int, timeout_s: float = 30.0) -> list[Barrier]:
    place = str(make_room(folder).path)
    return [Barrier(place, f"proc_{number}", count, timeout_s) for number in range(count)]


def wait_in_thread(barrier: Barrier, told: list[str]) -> threading.Thread:
    thread = threading.Thread(target=lambda: told.append(barrier.wait(BEGIN)))
    thread.start()
    return thread


def test_nobody_passes_before_all_are_there(tmp_path: Path) -> None:
    first, second = make_barriers(tmp_path, 2)
    told: list[str] = []
    thread = wait_in_thread(first, told)
    thread.join(0.1)
    assert told == []
    assert second.wait(BEGIN) == ""
    thread.join(60)
    assert told == [""]


def test_the_two_places_are_apart(tmp_path: Path) -> None:
    first, second = make_barriers(tmp_path, 2, timeout_s=0.05)
    assert second.wait(MARK) == "only 1 of 2 processes were ready within 0 s; they go on"
    assert "only 1 of 2" in first.wait(BEGIN)


def test_one_that_ends_before_it_is_ready_holds_nobody(tmp_path: Path) -> None:
    first, second = make_barriers(tmp_path, 2)
    told: list[str] = []
    thread = wait_in_thread(first, told)
    assert second.leave()
    thread.join(60)
    assert told == [""]
    assert not first.leave()


def test_one_that_gave_up_lets_the_others_pass(tmp_path: Path) -> None:
    first, second, _ = make_barriers(tmp_path, 3, timeout_s=0.05)
    assert "only 1 of 3" in first.wait(BEGIN)
    assert second.wait(BEGIN) == ""


def test_a_folder_that_is_gone_is_told_and_holds_nobody(tmp_path: Path) -> None:
    assert "do not wait for each other" in Barrier(str(tmp_path / "none"), "proc_0", 2).wait(BEGIN)


def test_the_environment_hands_it_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    barrier = Barrier("folder", "proc_0", 2, 5.0)
    monkeypatch.setenv(VARIABLE, barrier.encode())
    assert find_barrier() == barrier
    assert find_barrier() is None
    monkeypatch.setenv(VARIABLE, "{}")
    assert find_barrier() is None
