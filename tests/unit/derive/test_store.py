"""The store of what was derived: computed once, by one thread, until its files change, and bounded in bytes."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

from profiler_server.derive.derived import derived
from profiler_server.derive.store import Store, find_store, measure_bytes


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


def test_new_stamp_is_computed_again() -> None:
    store = Store()
    assert (store.keep("key", 1, lambda: 10), store.keep("key", 1, lambda: 11)) == (10, 10)
    assert store.keep("key", 2, lambda: 12) == 12


def test_computation_that_fails_is_tried_again() -> None:
    store = Store()
    with pytest.raises(ZeroDivisionError):
        store.keep("key", 1, lambda: 1 // 0)
    assert store.keep("key", 1, lambda: 3) == 3


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
