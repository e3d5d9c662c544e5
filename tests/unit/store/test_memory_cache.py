"""Cached results: computed once, by one thread, until their files change."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from profiler_server.store.cache.memory import MemoryCache


def test_threads_that_ask_for_the_same_at_once_share_one_computation() -> None:
    cache: MemoryCache[int] = MemoryCache(4)
    begun, go = threading.Event(), threading.Event()
    calls: list[int] = []

    def compute() -> int:
        calls.append(1)
        begun.set()
        assert go.wait(60)
        return 7

    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(cache.find_or_compute, "key", 1, compute) for _ in range(3)]
        assert begun.wait(60)
        go.set()
        assert [answer.result(10) for answer in answers] == [7, 7, 7]
    assert len(calls) == 1


def test_new_stamp_is_computed_again() -> None:
    cache: MemoryCache[int] = MemoryCache(4)
    assert (cache.find_or_compute("key", 1, lambda: 10), cache.find_or_compute("key", 1, lambda: 11)) == (10, 10)
    assert cache.find_or_compute("key", 2, lambda: 12) == 12


def test_computation_that_fails_is_tried_again() -> None:
    cache: MemoryCache[int] = MemoryCache(4)
    with pytest.raises(ZeroDivisionError):
        cache.find_or_compute("key", 1, lambda: 1 // 0)
    assert cache.find_or_compute("key", 1, lambda: 3) == 3
