"""The store of what was derived, and work in the background: once each, until files change, and not without bound."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

from profiler_server.derive import background
from profiler_server.derive.background import MOST_WAITING, Background
from profiler_server.derive.derived import derived
from profiler_server.derive.store import Store, find_store, measure_bytes
from tests.support.waiting import wait_for


def test_threads_that_ask_for_the_same_at_once_share_one_computation() -> None:
    store = Store()
    begun, go = threading.Event(), threading.Event()
    calls: list[int] = []

    def compute() -> int:
        calls.append(1)
        begun.set()
        assert go.wait(60)
        return 7

    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(store.keep, "key", 1, compute) for _ in range(3)]
        assert begun.wait(60)
        go.set()
        assert [answer.result(10) for answer in answers] == [7, 7, 7]
    assert len(calls) == 1


def test_what_was_not_asked_for_longest_makes_room() -> None:
    store = Store(most_bytes=25_000)
    for key in "abc":
        store.put(key, None, np.zeros(1000))
        store.find("a")
    store.put("d", None, np.zeros(1000))
    assert [key for key in "abcd" if key in store._entries] == ["a", "c", "d"]
    store.put("large", None, np.zeros(10_000))
    assert list(store._entries) == ["large"]


@dataclass(frozen=True, eq=False)
class Series:
    values: list[int]


def test_what_is_derived_of_a_result_is_told_by_the_very_same_and_goes_with_it() -> None:
    calls: list[int] = []

    @derived()
    def add(series: tuple[Series, ...]) -> int:
        calls.append(1)
        return sum(sum(one.values) for one in series)

    with Store().held() as store:
        one, same = Series([1, 2]), Series([1, 2])
        assert (add((one,)), add((one,)), add((same,))) == (3, 3, 3)
        assert len(calls) == 2
        del one, same
        gc.collect()
        store.put("next", None, 0)
        assert list(store._entries) == ["next"]


def test_two_stores_share_nothing_and_work_in_the_background_has_that_of_who_started_it() -> None:
    @derived()
    def find_held(number: int) -> Store:
        return find_store()

    with Store().held() as first:
        assert find_held(1) is first
        future = first.background.start("later", lambda: find_held(2))
        with Store().held() as second:
            assert find_held(1) is second
        assert future is not None
        assert future.result(60) is first


def test_a_value_is_measured_by_what_it_holds() -> None:
    assert measure_bytes(np.zeros(1000)) >= 8000
    assert measure_bytes({"a": ("b" * 500, np.zeros(1000))}) >= 8500
    assert measure_bytes(tuple(np.zeros(100) for _ in range(10_000))) >= 8_000_000


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "HEAD_START_S", 0.0)


def test_work_is_done_in_order_once_each_and_the_thread_ends() -> None:
    line, go, done = Background(), threading.Event(), list[str]()
    line.start("held", lambda: go.wait(60))
    line.start("first", lambda: done.append("first"))
    for _ in range(3):
        line.start("second", lambda: done.append("second"))
    go.set()
    wait_for(lambda: not line._work)
    assert done == ["first", "second"]
    line.start("second", lambda: done.append("again"))
    wait_for(lambda: not line._work)
    assert done[2:] == ["again"]


def test_what_is_too_much_is_not_taken() -> None:
    line, go, done = Background(), threading.Event(), list[int]()
    line.start("held", lambda: go.wait(60))
    for number in range(2 * MOST_WAITING):
        line.start(number, lambda: done.append(1))
    go.set()
    wait_for(lambda: not line._work)
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
    wait_for(lambda: not line._work)
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
    wait_for(lambda: not line._work)


def test_it_is_known_whether_work_goes_on() -> None:
    line, go = Background(), threading.Event()
    line.start("held", lambda: go.wait(60))
    assert background.is_working()
    go.set()
    wait_for(lambda: not line._work)
    wait_for(lambda: not background.is_working())
