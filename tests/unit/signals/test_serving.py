"""Requests, and calls of models on several threads and in coroutines."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import collector
from profiler_server.analysis.steps.requests import Requests, summarize_other_calls, summarize_requests
from tests.support import shapes
from tests.support.recording import Recorded, assert_sound, record

COUNT = 24


def call(model: torch.nn.Module, times: int) -> None:
    with torch.no_grad():
        for _ in range(times):
            model(torch.randn(4, 16))


def serve_in_turn() -> None:
    model = shapes.Net()
    for number in range(COUNT):
        with collector.record("request"):
            call(model, 1 + number % 3)


def serve_in_pool() -> None:
    model = shapes.Net()

    def handle(number: int) -> None:
        with collector.record("request"):
            call(model, 1 + number % 3)
            time.sleep(0.002)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(handle, range(COUNT)))


def serve_by_new_threads() -> None:
    model = shapes.Net()

    def handle(number: int) -> None:
        with collector.record("request"):
            call(model, 1 + number % 3)

    for number in range(COUNT):
        thread = threading.Thread(target=handle, args=(number,))
        thread.start()
        thread.join()


def serve_in_coroutines() -> None:
    model = shapes.Net()

    async def handle(number: int) -> None:
        with collector.record("request"):
            await asyncio.sleep(0.001 * (number % 3))
            call(model, number % 3)
            await asyncio.to_thread(call, model, 1)

    async def serve() -> None:
        await asyncio.gather(*(handle(number) for number in range(COUNT)))

    asyncio.run(serve())


def summarize(recorded: Recorded) -> Requests:
    found = summarize_requests(recorded.run.rank())
    assert found is not None
    return found


@pytest.mark.parametrize("loop", [serve_in_turn, serve_in_pool, serve_by_new_threads, serve_in_coroutines])
def test_every_request_and_every_call_in_it_counts(tmp_path: Path, loop: Callable[[], None]) -> None:
    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    found, others = summarize(recorded), summarize_other_calls(recorded.run.rank())
    assert (found.count, found.left_out, found.failed) == (COUNT, 0, 0)
    assert round(found.calls_mean * COUNT) == 2 * COUNT
    assert found.calls_max == 3
    in_rows = sum(row["forwards"] for row in recorded.rows)
    assert in_rows + (others.count if others is not None else 0) == 2 * COUNT


def test_a_request_takes_its_own_time_while_others_overlap(tmp_path: Path) -> None:
    async def handle(wait_s: float) -> None:
        with collector.record("request"):
            await asyncio.sleep(wait_s)

    async def serve() -> None:
        await asyncio.gather(handle(0.2), handle(0.01), handle(0.02))

    found = summarize(record(tmp_path, lambda: asyncio.run(serve())))
    assert found.duration_ns is not None
    assert found.most_at_once == 3
    assert 10e6 <= found.duration_ns.min < found.duration_ns.p50 < 200e6 <= found.duration_ns.max


def test_a_call_ends_with_its_model_and_not_with_the_wait_for_the_next(tmp_path: Path) -> None:
    def loop() -> None:
        model = shapes.Net()
        for _ in range(COUNT):
            call(model, 1)
            time.sleep(0.01)

    recorded = record(tmp_path, loop)
    calls = [row for row in recorded.rows if row["kind"] == "eval"]
    assert len(calls) == COUNT
    assert all(row["duration_ns"] == row["forward_ns"] for row in calls)
    waits = [row["duration_ns"] for row in recorded.rows if row["kind"] == "rest"]
    assert len(waits) == COUNT
    assert min(waits) >= 10e6


def test_a_training_records_nothing_of_calls_elsewhere(tmp_path: Path) -> None:
    def loop() -> None:
        shapes.plain()
        teacher = threading.Thread(target=call, args=(shapes.Net(), 3))
        teacher.start()
        teacher.join()
        with collector.record("request"):
            call(shapes.Net(), 2)

    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    assert summarize_other_calls(recorded.run.rank()) is None
    assert summarize(recorded).calls_max == 0


def test_an_actor_that_calls_a_model_first_does_not_take_the_training_from_its_thread(tmp_path: Path) -> None:
    def loop() -> None:
        actor = threading.Thread(target=call, args=(shapes.Net(), 3))
        actor.start()
        actor.join()
        shapes.plain()

    alone = record(tmp_path / "alone", shapes.plain)
    recorded = record(tmp_path / "beside", loop)
    assert_sound(recorded)
    assert recorded.kinds["train"] == alone.kinds["train"]
    assert recorded.count("fetches") == alone.count("fetches")


def test_the_cost_of_an_inference_is_measured(tmp_path: Path) -> None:
    def loop() -> None:
        model = shapes.Net()
        for _ in range(200):
            call(model, 1)
            time.sleep(0.006)

    cost = record(tmp_path, loop).run.rank().manifest.overhead
    assert cost.training_thread_ns_per_step is not None
    assert cost.training_thread_ns_per_step > 0
