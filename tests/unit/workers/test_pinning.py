"""The pin thread: its copies and its waits, batch by batch, without an accelerator."""

from __future__ import annotations

import queue
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils.worker import _ResumeIteration

from collector.ring.clock import Clock
from collector.ring.stage_log import StageLog
from collector.sidecar.assemblers.stages import StageAssembler
from collector.workers.queues import PinEntry
from tests.support.recording import record


def copy_batches(in_queue: Any, out_queue: Any) -> None:
    """As torch's loop: take, copy, hand on, until there is nothing."""
    while True:
        try:
            message = in_queue.get(block=False)
        except queue.Empty:
            return
        time.sleep(0.004)
        out_queue.put(message)


def run_pinning(folder: Path, messages: list[Any]) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return what came out, and the rows."""
    (folder / "events").mkdir()
    waiting: queue.Queue[Any] = queue.Queue()
    done: queue.Queue[Any] = queue.Queue()
    for message in messages:
        waiting.put(message)
    log = StageLog(folder / "events" / "stages-main-1.ring", -1)
    PinEntry(copy_batches, log, 0, 1)(waiting, done)
    table = StageAssembler(folder, Clock(0, 0, 0)).poll().get("stages")
    return [done.get() for _ in range(done.qsize())], table.to_pylist() if table is not None else []


def test_a_copy_is_work_of_the_stage_pin(tmp_path: Path) -> None:
    batch = {"x": torch.zeros(8, 4), "y": [torch.zeros(8)]}
    _, rows = run_pinning(tmp_path, [(0, batch), (1, batch)])
    work = [row for row in rows if row["kind"] == "work"]
    assert [(row["stage"], row["replica"], row["epoch"], row["batch"], row["bytes"]) for row in work] == [
        ("pin", -1, 1, 0, 160),
        ("pin", -1, 1, 1, 160),
    ]
    assert all(row["duration_ns"] > 3_500_000 for row in work)
    assert {row["kind"] for row in rows} == {"work", "input_wait", "output_wait"}


def test_messages_pass_through_as_they_are(tmp_path: Path) -> None:
    messages = [(0, torch.zeros(2)), (_ResumeIteration(), None), (None, None), (1, ["text"])]
    passed, _ = run_pinning(tmp_path, messages)
    assert all(given is got for given, got in zip(messages, passed, strict=True))


def test_workers_that_go_on_begin_one_epoch_together(tmp_path: Path) -> None:
    resume = [(_ResumeIteration(), None)] * 2
    _, rows = run_pinning(tmp_path, [(0, None), *resume, (0, None), (1, None), *resume, (0, None)])
    assert [(row["epoch"], row["batch"]) for row in rows if row["kind"] == "work"] == [(1, 0), (2, 0), (2, 1), (3, 0)]


def test_a_message_of_another_shape_ends_the_clock_not_the_thread(tmp_path: Path) -> None:
    passed, rows = run_pinning(tmp_path, [(0, None), "odd", (1, None)])
    assert passed == [(0, None), "odd", (1, None)]
    assert [row["batch"] for row in rows if row["kind"] == "work"] == [0]


class Shadowed(Dataset[Any]):  # type: ignore[misc]
    """Holds an attribute of the name of the method, which indexing does not look at."""

    def __init__(self) -> None:
        self.__dict__["__getitem__"] = None

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), float(index))


def test_an_attribute_in_the_way_of_the_method_is_overlooked(tmp_path: Any) -> None:
    seen: list[float] = []
    record(tmp_path, lambda: seen.extend(float(batch.sum()) for batch in DataLoader(Shadowed(), 2)))
    assert seen == [2.0, 10.0, 18.0, 26.0]
