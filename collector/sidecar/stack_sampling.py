"""Python stacks of the training: the thread that samples stacks, and the number and text of each different stack."""

from __future__ import annotations

import contextlib
import linecache
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from collector.edge import UNCOUNTED, Edge
from collector.frames.discovery import list_natives
from collector.frames.offers import Offers
from collector.frames.posting import AGAINST, BESIDE, TRAINER, Post
from collector.frames.reading import Code, Place, StackReader
from collector.frames.threads import Seen, Threads
from collector.ring.windows import NO_WINDOW, WINDOW_OPEN

MOST_STACKS = 4000
"""Most different stacks in a run; any further stack counts as OTHER."""
MOST_PLACES = 50_000
OTHER = "(other)"
NOT_THEIRS = -1
"""Returned in place of a number for a stack whose innermost frame is in Stepscope's own code. Such a stack gives no
sample."""
MOST_NUMBERS = 100_000
UNDIVIDED = "fetch"
"""Stage of a batch whose samples are not timed one by one: reading or transforming."""
INPUT_WAIT = "wait"
_OUTER_FRAMES, _INNER_FRAMES = 40, 24
_LEFT_OUT = "… (…:0)"
_LONGEST_NAME, _LONGEST_FILE = 160, 300
_OURS = str(Path(__file__).resolve().parents[1]) + "/"
_FETCH = ("torch/utils/data/_utils/fetch.py", "fetch")
_NO_FRAME = -1
_LIBRARY = os.path.dirname(threading.__file__)
_WAITING = tuple(
    f"{_LIBRARY}/{name}" for name in ("threading.py", "queue.py", "concurrent/", "asyncio/", "selectors.py")
)
"""Where Python waits for other threads."""
_ASKING = ("torch/utils/data/dataloader.py", "_try_get_data")


class Frame(NamedTuple):
    name: str
    file: str
    line: int

    @property
    def is_ours(self) -> bool:
        return self.file.startswith(_OURS)

    def __str__(self) -> str:
        return f"{self.name} ({self.file}:{self.line})"


class Stack(NamedTuple):
    """A stack as text: a line per frame, the outermost first. `stage` is its stage of the data pipeline, None outside
    of one; the first `entry` lines are the callers of the stage.

    `begins` is the number of lines with which Python begins a thread. `waits` is true if it waits for another thread of
    its process, by Python's own means. `is_ours` is true for a thread that Stepscope has begun.
    """

    text: str
    stage: str | None
    entry: int
    begins: int = 0
    waits: bool = False
    is_ours: bool = False


class StackBook:
    def __init__(self) -> None:
        self._frames: dict[Frame, int] = {}
        self._numbers: dict[tuple[int, ...], int] = {}
        self._known: list[Frame] = []
        self._stacks: list[Stack] = [Stack(OTHER, None, 0)]
        self._places: dict[tuple[int, Place], int] = {}

    def __getitem__(self, number: int) -> Stack:
        return self._stacks[number]

    def number(self, reader: StackReader, places: Sequence[Place]) -> int:
        """Return a stack's number (`places`: innermost first), NOT_THEIRS for none or ours, 0 (OTHER) if full."""
        key = tuple(number for place in reversed(places) if (number := self._find(reader, place)) != _NO_FRAME)
        found = self._numbers.get(key)
        if found is None:
            if len(self._numbers) >= MOST_NUMBERS:
                return 0
            found = self._numbers[key] = self._describe([self._known[number] for number in key])
        return found

    def _describe(self, frames: Sequence[Frame]) -> int:
        if not frames or frames[-1].is_ours:
            return NOT_THEIRS
        if len(self._stacks) > MOST_STACKS:
            return 0
        self._stacks.append(describe_stack(frames))
        return len(self._stacks) - 1

    def forget(self) -> None:
        """Forget which code lies at which address, so that the code at each address is read again."""
        self._places.clear()

    def _find(self, reader: StackReader, place: Place) -> int:
        key = (id(reader), place)
        found = self._places.get(key)
        if found is None:
            if len(self._places) >= MOST_PLACES:
                self._places.clear()
            code = reader.describe(place[0])
            found = self._places[key] = _NO_FRAME if code is None else self._add(code, place[1])
        return found

    def _add(self, code: Code, instruction: int) -> int:
        name, file = _clean(code.name)[:_LONGEST_NAME], _clean(code.file)[-_LONGEST_FILE:]
        frame = Frame(name, file, max(code.find_line(instruction), 0))
        number = self._frames.get(frame)
        if number is None:
            number = self._frames[frame] = len(self._known)
            self._known.append(frame)
        return number


def describe_stack(frames: Sequence[Frame]) -> Stack:
    """Return the stack as text with its pipeline stage, without frames of Stepscope and of the import system."""
    kept: list[str] = []
    stage, entry = None, 0
    first = next((at for at, frame in enumerate(frames) if frame.file != threading.__file__), 0)
    for frame in frames:
        found = _find_stage(frame)
        if found is not None and stage != "collate":
            stage = found
            entry = len(kept) + (not frame.is_ours)
        if not frame.is_ours and not frame.file.startswith("<frozen "):
            kept.append(str(frame))
    if len(kept) > _OUTER_FRAMES + _INNER_FRAMES:
        kept = [*kept[:_OUTER_FRAMES], _LEFT_OUT, *kept[-_INNER_FRAMES:]]
    waits = bool(frames) and frames[-1].file.startswith(_WAITING) and not any(map(_asks_workers, frames))
    is_ours = bool(frames) and frames[first].is_ours
    return Stack("\n".join(kept), stage, min(entry, _OUTER_FRAMES), first, waits, is_ours)


def _asks_workers(frame: Frame) -> bool:
    """Return whether a frame waits for the workers of a DataLoader: these have samples of their own."""
    return frame.file.endswith(_ASKING[0]) and frame.name.endswith(_ASKING[1])


def _find_stage(frame: Frame) -> str | None:
    if (frame.file.endswith(_FETCH[0])) and frame.name.endswith(_FETCH[1]):
        return "collate" if "collate_fn" in linecache.getline(frame.file, frame.line) else UNDIVIDED
    if not frame.is_ours:
        return None
    file, name = frame.file[len(_OURS) :].removesuffix(UNCOUNTED), frame.name.rpartition(".")[2]
    if file == "workers/fetching.py":
        return {"_run_collate": "collate", "__getitem__": "read", "__getitems__": "read", "__next__": "read"}.get(name)
    if file == "workers/tally.py" and name == "timed":
        return "transform"
    if file == "workers/entry.py":
        return {"get": INPUT_WAIT, "put": "send"}.get(name)
    return None


def _clean(text: str) -> str:
    return text if text.isprintable() else "".join(part if part.isprintable() else "?" for part in text)


RATE_PER_S = 50.0
"""Samples per second of the training thread, and of all workers together."""
DENSE_WAIT_S = 0.001
"""Time between samples of the training thread in a detailed window, where operators are known beside each sample."""
MOST_DENSE = 1_500
"""Most samples of the training thread in one detailed window that are taken at this pace."""
_NEAR_WAIT_S = 0.002
MOST_CPU_FRAC = 0.005
"""Largest share of the run's processors that sampling may use. If reading takes more, there are fewer samples."""
MOST_SAMPLES = 20_000
"""Most samples held until `take` is called."""
MOST_WORKERS = 1_000
_LOOK_S = 0.2
_TRIES = 3
_FORGET_S = 60.0
_LEAST_WAIT_S = 0.002
_LATENESS_WAITS = 10.0
_CROWDED_WAIT_S = 0.1
"""Longest sleep between samples, in seconds, when this thread wakes up late."""
_log = logging.getLogger("stepscope")


class Sample(NamedTuple):
    """One sampled stack. `at_ns` is a perf_counter_ns reading, `replica` the number of a worker, TRAINER, BESIDE or AGAINST,
    `loader` the worker's loader (negative for none), `stack` a number of the StackBook.

    `is_dense` means that the sample was taken in a detailed window. `seen` is the state of the process's threads at
    that time, None if it was not read.
    """

    at_ns: int
    replica: int
    loader: int
    stack: int
    is_dense: bool = False
    seen: Seen | None = None


class StackSampler:
    """A thread that samples stacks until `stop`. Any thread may call `take`. `torn` counts stacks that changed while
    they were read; `problem` is the error that ended the sampling, "" without one.
    """

    def __init__(
        self,
        offers: Offers,
        book: StackBook,
        processors: float = 1.0,
        read_window: Callable[[], int] = lambda: NO_WINDOW,
    ) -> None:
        self._read_window = read_window
        self._dense = 0
        self._budget_frac = MOST_CPU_FRAC * max(processors, 1.0)
        self._offers = offers
        self._book = book
        self._stopping = threading.Event()
        self._samples: list[Sample] = []
        self._trainer: tuple[Post, StackReader] | None = None
        self._threads: Threads | None = None
        self._workers: list[tuple[Post, StackReader]] = []
        self._turn = 0
        self._looked = self._forgot = self._late_s = 0.0
        self.torn = 0
        self.problem = ""
        self._thread = threading.Thread(target=self._run, name="stepscope stacks", daemon=True)

    @property
    def refusal(self) -> str:
        return self._offers.refusal

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the sampling; `take` still returns the samples so far."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def take(self) -> list[Sample]:
        taken, self._samples = self._samples, []
        return taken

    def _run(self) -> None:
        def fail(error: Exception) -> None:
            self.problem = repr(error)
            _log.warning("stepscope: stacks are not sampled any more: %r", error)

        with Edge(fail):
            _stay_behind()
            begun, used_at_start = time.monotonic(), time.thread_time()
            while True:
                wait_s = self._choose_wait(time.monotonic() - begun, used_at_start)
                if self._sleep(wait_s):
                    return
                self._look()
                if self._trainer is not None and self._is_dense():
                    self._dense += 1
                    self._sample(*self._trainer, is_dense=True)
                else:
                    self._sample_all()

    def _sleep(self, wait_s: float) -> bool:
        window = self._read_window()
        if window == NO_WINDOW:
            self._dense = 0
            asleep = time.monotonic()
            if self._stopping.wait(wait_s):
                return True
            self._note_lateness(time.monotonic() - asleep - wait_s)
            return False
        if self._is_dense():
            return self._stopping.wait(DENSE_WAIT_S)
        ends = time.monotonic() + wait_s
        while not self._is_dense() and time.monotonic() < ends:
            if self._stopping.wait(min(_NEAR_WAIT_S, wait_s)):
                return True
        return False

    def _is_dense(self) -> bool:
        return self._read_window() == WINDOW_OPEN and self._dense < MOST_DENSE

    def _choose_wait(self, elapsed_s: float, used_at_start: float) -> float:
        """Return the seconds to sleep. They vary at random, so that samples do not follow a rhythm of the training."""
        used_s = time.thread_time() - used_at_start
        owed_s = used_s / self._budget_frac - elapsed_s - 1.0
        crowded_s = min(_LATENESS_WAITS * self._late_s, _CROWDED_WAIT_S)
        return max(random.uniform(0.5, 1.5) * max(1.0 / RATE_PER_S, crowded_s), min(owed_s, 1.0), _LEAST_WAIT_S)

    def _note_lateness(self, late_s: float) -> None:
        """Update the mean delay of wake-ups: a long one shows that processors are scarce and samples slow."""
        self._late_s += (late_s - self._late_s) / 16

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        for post, reader in self._offers.take():
            if post.replica == TRAINER:
                self._trainer, self._threads = (post, reader), Threads(post.pid, post.native)
            elif len(self._workers) < MOST_WORKERS:
                self._workers.append((post, reader))
        if now - self._forgot >= _FORGET_S:
            self._forgot = now
            self._book.forget()
            for _, reader in self._workers if self._trainer is None else [self._trainer, *self._workers]:
                reader.forget()

    def _sample_all(self) -> None:
        if self._trainer is not None and not self._sample(*self._trainer):
            self._trainer = None
        while self._workers:
            self._turn = (self._turn + 1) % len(self._workers)
            if self._sample(*self._workers[self._turn]):
                return
            del self._workers[self._turn]  # it is gone: the next one takes its turn

    def _sample(self, post: Post, reader: StackReader, is_dense: bool = False) -> bool:
        at_ns = time.perf_counter_ns()
        threads = self._threads if post.replica == TRAINER and not is_dense else None
        seen = threads.look() if threads is not None else None
        try:
            places = reader.read()
        except OSError:
            reader.close()
            return False
        if places is None:
            self.torn += 1
        elif len(self._samples) < MOST_SAMPLES:
            number = self._book.number(reader, places)
            if number != NOT_THEIRS:
                self._samples.append(Sample(at_ns, post.replica, post.loader, number, is_dense, seen))
                if threads is not None and (seen is None or (seen.asleep and seen.running)):
                    replica = BESIDE if self._book[number].waits else AGAINST
                    self._sample_beside(Sample(at_ns, replica, post.loader, number), post, reader, threads)
        return True

    def _sample_beside(self, sample: Sample, post: Post, reader: StackReader, threads: Threads) -> None:
        """Sample one of the threads that run Python while the training thread stands still; `sample` lacks its stack."""
        if threads.is_running(post.native):
            return
        natives = list_natives(reader.memory, reader.shift)
        others = ((native, state) for native, state in natives.items() if native != post.native)
        running = [state for native, state in others if threads.is_running(native)]
        state = random.choice(running) if running else 0
        places = None
        with contextlib.suppress(OSError):  # the thread has ended meanwhile
            # The stack of a thread that runs often changes while it is read.
            places = next(filter(None, (reader.read(state) for _ in range(_TRIES))), None) if state else None
        number = self._book.number(reader, places) if places else NOT_THEIRS
        if number != NOT_THEIRS and not self._book[number].is_ours and not self._book[number].waits:
            self._samples.append(sample._replace(stack=number))


def _stay_behind() -> None:
    """Let this thread, when it wakes up, wait for the end of another's time slice instead of preempting it."""
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: not on Linux
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
