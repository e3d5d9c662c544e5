"""Python threads beside the training thread, and how long they ran."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from collector.notes import Notes, write_notes
from collector.sidecar.usage import PythonThreads
from tests.support import shapes
from tests.support.recording import record


def note(folder: Path, threads: object) -> None:
    notes = Notes(0, os.getpid(), None, "host", 0, 0, 0, 0, facts={"python_threads": threads})
    (folder / "events").mkdir(exist_ok=True)
    write_notes(notes, folder)


def schedule(folder: Path, thread: int, ran_ns: int) -> None:
    task = folder / "proc" / "7" / "task" / str(thread)
    task.mkdir(parents=True, exist_ok=True)
    (task / "schedstat").write_text(f"{ran_ns} 5 1\n")


def train() -> None:
    model = shapes.Net()
    shapes.train_on(model, shapes.sgd(model), shapes.loader(320))


def test_threads_are_summed(tmp_path: Path) -> None:
    note(tmp_path, [{"id": 8, "name": "a"}, {"id": 9, "name": "b"}, {"id": 10, "name": "gone"}])
    for thread in (8, 9):
        schedule(tmp_path, thread, 0)
    threads = PythonThreads(tmp_path, 7, tmp_path / "proc")
    assert list(threads.sample()) == []
    for thread in (8, 9):
        schedule(tmp_path, thread, 10_000_000_000)
    (sample,) = threads.sample()
    assert (sample.source, sample.metric) == ("process", "python_threads_cores")
    assert sample.value > 0


def test_damaged_notes_name_no_threads(tmp_path: Path) -> None:
    for threads in (None, 3, ["x", {}, {"id": "y"}, {"id": -4}]):
        note(tmp_path, threads)
        reader = PythonThreads(tmp_path, 7, tmp_path / "proc")
        assert [*reader.sample(), *reader.sample()] == []


def test_other_threads_are_noted_and_the_training_thread_is_not(tmp_path: Path) -> None:
    stop = threading.Event()
    other = threading.Thread(target=stop.wait, name="prefetch")
    other.start()
    try:
        facts = record(tmp_path, train).run.rank().manifest.facts
    finally:
        stop.set()
        other.join()
    noted = {entry["name"]: entry["id"] for entry in facts["python_threads"]}
    assert noted["prefetch"] == other.native_id
    assert threading.get_native_id() not in noted.values()
