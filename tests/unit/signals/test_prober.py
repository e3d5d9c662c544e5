"""When the probe holds a batch back, which steps it measures, and when it leaves the training alone."""

from __future__ import annotations

import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from collector.context.signals import SETTLED_STEP
from collector.ring.codes import PROBED, STALL_END, STALL_START
from collector.signals import probe as probing
from collector.signals.probe import Prober, Process

PREFETCHED = 4


class Log:
    def __init__(self) -> None:
        self.written: list[tuple[int, int]] = []

    def write(self, event: int, payload: int) -> None:
        self.written.append((event, payload))

    @property
    def marks(self) -> list[int]:
        return [payload for event, payload in self.written if event == PROBED]


class Loader:
    """Counters as an iterator with two workers has them; a look at them while training waits makes one batch ready."""

    def __init__(self, ready: int = 0, *, makes: bool = True, **fields: Any) -> None:
        self.ready, self.makes = ready, makes
        self._num_workers, self._prefetch_factor, self._pin_memory, self._in_order = 2, 2, False, True
        self._task_info = dict.fromkeys(range(PREFETCHED))
        self._tasks_outstanding = PREFETCHED
        self._worker_result_queue = SimpleNamespace(qsize=lambda: self.ready)
        vars(self).update(fields)

    def take(self) -> None:
        self.ready = max(self.ready - 1, 0)

    def make_one(self, seconds: float) -> None:
        self.ready = min(self.ready + self.makes, PREFETCHED)


class Training:
    """A training of which only the fetches and the ends of steps matter."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, loader: Loader, **process: Any) -> None:
        self.steps = SimpleNamespace(ended=0, fetches=0)
        self.log, self.told, self.errors = Log(), deque[dict[str, Any]](maxlen=1), list[Exception]()
        self.loader = loader
        monkeypatch.setattr(time, "sleep", loader.make_one)
        self.prober = Prober(
            self.log,  # type: ignore[arg-type]
            self.steps,  # type: ignore[arg-type]
            self.told.append,
            self.errors.append,
            Process(**process),
        )

    def fetch(self, iterator: Any = None) -> None:
        self.steps.fetches += 1
        self.prober.before_fetch(self.loader if iterator is None else iterator)
        self.loader.take()

    def run(self, steps: int, batches: int = 1) -> None:
        for _ in range(steps):
            for _ in range(batches):
                self.fetch()
            self.steps.ended += 1

    @property
    def measured(self) -> list[int]:
        """How many steps each round has measured."""
        return [len(entry["step_ns"]) for entry in self.told[-1]["rounds"]] if self.told else []


@pytest.mark.parametrize(("batches", "steps"), [(1, 4), (2, 2), (3, 1), (4, 1), (5, 0)])
def test_a_step_is_measured_when_all_of_its_batches_were_ready(
    monkeypatch: pytest.MonkeyPatch, batches: int, steps: int
) -> None:
    training = Training(monkeypatch, Loader())
    training.run(50, batches)
    assert training.measured == ([steps] if steps else [])


def test_what_was_held_back_is_a_stall_and_the_steps_after_it_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, Loader())
    training.run(SETTLED_STEP + 1)
    assert [event for event, _ in training.log.written] == [STALL_START, PROBED, STALL_END]
    training.run(20)
    assert training.log.marks == [1, 0]
    assert training.told[-1]["cost_ns"] > 0


def test_steps_stay_marked_until_the_queue_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, Loader())
    training.run(SETTLED_STEP + 1)
    training.loader.ready = PREFETCHED + 6  # the workers go on while training takes what is there
    training.run(5)
    assert training.log.marks == [1]
    training.run(6)
    assert training.log.marks == [1, 0]


def test_it_ends_when_enough_steps_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, Loader())
    training.run(400)
    assert sum(training.measured) >= probing.WANTED_STEPS
    assert training.prober.has_left
    assert len(training.log.marks) == 2 * len(training.measured)


def test_workers_that_never_fill_their_queue_are_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "MOST_WAIT_NS", 1_000_000)
    training = Training(monkeypatch, Loader(makes=False))
    training.run(200)
    assert (training.measured, training.log.marks) == ([], [1, 0])
    assert training.prober.has_left
    assert "did not fill their queue" in training.prober.reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"_num_workers": 0}, "Without workers"),
        ({"_in_order": False}, "in_order=False"),
        ({"_task_info": {}}, "No step from step 30 on"),
    ],
)
def test_nothing_is_held_back_where_that_could_change_the_training(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], reason: str
) -> None:
    training = Training(monkeypatch, Loader(**fields))
    training.run(100)
    assert not training.log.written
    assert reason in training.prober.reason


@pytest.mark.parametrize("process", [{"is_busy": lambda: True}, {"find_refusal": lambda: "several ranks"}])
def test_nothing_is_held_back_beside_another_profiler_or_another_rank(
    monkeypatch: pytest.MonkeyPatch, process: dict[str, Any]
) -> None:
    training = Training(monkeypatch, Loader(), **process)
    training.run(100)
    assert not training.log.written


def test_a_round_into_which_another_loader_comes_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, Loader())
    training.run(SETTLED_STEP + 2)
    training.fetch(Loader())
    assert (training.measured, training.log.marks) == ([], [1, 0])


def test_a_round_in_which_another_epoch_begins_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, Loader())
    training.run(SETTLED_STEP + 2)
    training.steps.fetches += 1  # the start of a loader counts, too
    training.run(1)
    assert (training.measured, training.log.marks) == ([], [1, 0])


def test_a_pause_ends_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, Loader())
    training.run(SETTLED_STEP + 2)
    training.prober.stop()
    assert training.log.marks == [1, 0]


def test_a_round_that_was_measured_is_kept_when_the_recording_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, Loader())
    training.run(SETTLED_STEP + PREFETCHED)
    training.loader.ready = 1
    training.fetch()
    training.prober.stop()
    assert training.measured == [PREFETCHED]


def test_the_device_is_waited_for_before_and_after_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    training: Training = Training(monkeypatch, Loader(), synchronize=lambda: waits.append(training.steps.ended))
    training.run(SETTLED_STEP + 10)
    assert waits == [SETTLED_STEP, SETTLED_STEP + PREFETCHED]


def test_counters_that_cannot_be_read_end_the_probe_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, Loader(_tasks_outstanding="many"))
    training.run(100)
    assert [type(error) for error in training.errors] == [TypeError]
    assert training.prober.has_left
