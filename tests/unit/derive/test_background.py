"""Work in the background: once each, one at a time, and not without bound."""

from __future__ import annotations

import threading
import time

import pytest

from profiler_server.derive import background
from profiler_server.derive.background import MOST_WAITING, Background


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "HEAD_START_S", 0.0)


def wait_until_idle(line: Background) -> None:
    deadline = time.monotonic() + 120
    while line._work:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_work_is_done_in_order_once_each_and_the_thread_ends() -> None:
    line, go, done = Background(), threading.Event(), list[str]()
    line.start("held", lambda: go.wait(60))
    line.start("first", lambda: done.append("first"))
    for _ in range(3):
        line.start("second", lambda: done.append("second"))
    go.set()
    wait_until_idle(line)
    assert done == ["first", "second"]
    line.start("second", lambda: done.append("again"))
    wait_until_idle(line)
    assert done[2:] == ["again"]


def test_what_is_too_much_is_not_taken() -> None:
    line, go, done = Background(), threading.Event(), list[int]()
    line.start("held", lambda: go.wait(60))
    for number in range(2 * MOST_WAITING):
        line.start(number, lambda: done.append(1))
    go.set()
    wait_until_idle(line)
    assert len(done) == MOST_WAITING - 1


def test_what_waits_can_be_dropped_while_something_is_under_way() -> None:
    line, begun, go, done = Background(), threading.Event(), threading.Event(), list[str]()

    def hold() -> None:
        begun.set()
        go.wait(60)
        done.append("held")

    line.start("held", hold)
    line.start("dropped", lambda: done.append("dropped"))
    assert begun.wait(60)
    line.drop_waiting()
    go.set()
    wait_until_idle(line)
    assert done == ["held"]


def test_whoever_starts_the_same_work_shares_its_result_or_its_error() -> None:
    line, go = Background(threads=2), threading.Event()
    first = line.start("sum", lambda: go.wait(60) and 7)
    second = line.start("sum", lambda: 8)
    failing = line.start("division", lambda: 1 // 0)
    assert first is not None
    assert first is second
    assert failing is not None
    assert isinstance(failing.exception(10), ZeroDivisionError)
    go.set()
    assert first.result(10) == 7
    wait_until_idle(line)


def test_it_is_known_whether_work_goes_on() -> None:
    line, go = Background(), threading.Event()
    line.start("held", lambda: go.wait(60))
    assert background.is_working()
    go.set()
    wait_until_idle(line)
    deadline = time.monotonic() + 120
    while background.is_working():
        assert time.monotonic() < deadline
        time.sleep(0.01)
