"""A pipeline of three stages that a script drives by its own queues."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import collector

ITEMS = 30


def make(source: Any, target: Any, name: str, sleep_s: float, replica: int = 0) -> None:
    """Take items until None, work on each, pass them on."""
    while (item := source.get()) is not None:
        with collector.stage(name, replica=replica):
            time.sleep(sleep_s)
        target.put(item)


def feed(target: Any) -> None:
    for item in range(ITEMS):
        target.put(item)


def run_pipeline(sleeps: dict[str, float], makes_queue: Callable[[int], Any], makes_worker: Any) -> None:
    """Run one replica for each stage, with a queue of 4 before each and after the last; use what comes out."""
    queues = [collector.queue(f"to {name}", makes_queue(4)) for name in sleeps]
    queues.append(collector.queue("results", makes_queue(4)))
    workers = [
        makes_worker(target=make, args=(before, after, name, sleep_s))
        for (name, sleep_s), before, after in zip(sleeps.items(), queues, queues[1:], strict=False)
    ]
    for worker in workers:
        worker.start()
    feeder = threading.Thread(target=feed, args=(queues[0],))
    feeder.start()
    for _ in range(ITEMS):
        queues[-1].get()
    feeder.join()
    for before, worker in zip(queues, workers, strict=False):
        before.put(None)
        worker.join()
