"""A pipeline without a DataLoader: threads read, decode, resize and batch pictures, and queues join them.

    python examples/pipeline.py --output runs/pipeline
    stepscope serve runs

Decoding is slow on purpose: the run, and the page Data pipeline, name it. `--decoders 8` moves the limit elsewhere.
"""

from __future__ import annotations

import argparse
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import stepscope

END = None
READ_S, DECODE_S, RESIZE_S, BATCH_S = 0.001, 0.012, 0.003, 0.004
BATCH = 8


@dataclass(frozen=True)
class Queues:
    paths: Any
    images: Any
    small: Any
    batches: Any


def read(count: int, queues: Queues) -> None:
    for number in range(count):
        with stepscope.stage("read", replica=0):
            time.sleep(READ_S)
        queues.paths.put(number)


def decode(replica: int, queues: Queues) -> None:
    while (number := queues.paths.get()) is not END:
        with stepscope.stage("decode", replica=replica) as stage:
            time.sleep(DECODE_S)
            image = np.full((64, 64), number % 256, np.uint8)
            stage.bytes = image.nbytes
        queues.images.put(image)


def resize(queues: Queues) -> None:
    while (image := queues.images.get()) is not END:
        with stepscope.stage("resize", replica=0):
            time.sleep(RESIZE_S)
            small = image[::2, ::2]
        queues.small.put(small)


def batch(queues: Queues) -> None:
    images = []
    while (image := queues.small.get()) is not END:
        images.append(image)
        if len(images) == BATCH:
            with stepscope.stage("batch", replica=0, items=BATCH):
                time.sleep(BATCH_S)
                whole = np.stack(images)
                images.clear()
            queues.batches.put(whole)


def run_pipeline(count: int, decoders: int) -> int:
    """Pass `count` pictures through the pipeline, and return how many batches came out."""
    names = ("paths", "images", "small", "batches")
    queues = Queues(*(stepscope.queue(name, queue.Queue(maxsize=16)) for name in names))
    groups: list[tuple[list[Callable[[], None]], Any]] = [
        ([lambda: read(count, queues)], queues.paths),
        ([lambda i=i: decode(i, queues) for i in range(decoders)], queues.images),  # type: ignore[misc]
        ([lambda: resize(queues)], queues.small),
        ([lambda: batch(queues)], queues.batches),
    ]
    threads = [[threading.Thread(target=work) for work in works] for works, _ in groups]
    for thread in [thread for group in threads for thread in group]:
        thread.start()
    closer = threading.Thread(target=close_in_order, args=(threads, [out for _, out in groups], decoders))
    closer.start()
    batches = 0
    with stepscope.record("use batches"):
        while queues.batches.get() is not END:
            batches += 1
    closer.join()
    return batches


def close_in_order(threads: list[list[threading.Thread]], outputs: list[Any], decoders: int) -> None:
    """End the input of each stage once all threads of the stage before have ended."""
    for place, (group, output) in enumerate(zip(threads, outputs, strict=True)):
        for thread in group:
            thread.join()
        for _ in range(decoders if place == 0 else 1):
            output.put(END)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default="runs/pipeline")
    parser.add_argument("--pictures", type=int, default=400)
    parser.add_argument("--decoders", type=int, default=2)
    arguments = parser.parse_args()
    profiler = stepscope.Profiler(arguments.output, window=None)
    batches = run_pipeline(arguments.pictures, arguments.decoders)
    run = profiler.analyse()
    print(f"{batches} batches. What each stage did of its time:")
    stages = run.frame("stages")
    spent = stages.pivot_table("duration_ns", "stage", "kind", "sum", fill_value=0, observed=True)
    shares = spent.div(spent.sum(axis=1), axis=0)
    print(shares.round(2).to_string())
    print(f"The pipeline is limited by {shares['work'].idxmax()}.")


if __name__ == "__main__":
    main()
