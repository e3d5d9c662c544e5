"""The probe (opt in): the duration of a step whose batch is ready, measured in the training itself.

Now and then a batch is held back until the loader has made all requested batches. The next steps then never wait for
data. The training gets the same batches in the same order, only later, and no random number is drawn. Later steps find
a fuller queue than usual, so they are marked until the queue is back to normal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from collector.context.hooks import stop_calling
from collector.context.signals import SETTLED_STEP, Signal, SignalContext
from collector.context.steps import STALL_NS, StepCounter
from collector.edge import Edge
from collector.ring.codes import PROBED, STALL_END, STALL_START
from collector.ring.words import WordLog

WANTED_STEPS = 24
MOST_ROUNDS = 6
MOST_WAIT_NS = 2_000_000_000
"""Longest time, summed over all rounds, for which the training waits for batches; the last poll may exceed it."""
POLL_S = 0.002
STEPS_BETWEEN, ROUNDS_BETWEEN = 20, 3
"""Least steps between two rounds: an absolute number, and a multiple of the steps of the round."""
MOST_SETTLING = 100
"""Most fetches after a round that are marked, because the queue is fuller than usual."""

NO_LOADER = (
    "No step from step {first} on was fed by one DataLoader with workers. Without workers the next batches cannot be made "
    "ahead: random numbers would be drawn in another order."
)
TOO_SLOW = "The workers did not fill their queue while the training was held back for {waited_s:.1f} s."
UNORDERED = "The loader has in_order=False: the order of its batches depends on time, so the training is not held back."
SEVERAL_RANKS = (
    "The run has several ranks: where one is held back, all wait for it, so the probe is for runs of one rank."
)
INTERRUPTED = "Something else came into every round: the end of an epoch, another loader, a detailed window."


@dataclass(frozen=True)
class Supply:
    """The number of batches requested from an iterator with workers, and how many of these batches are not made yet."""

    asked: int
    missing: int


def look_at(iterator: Any) -> Supply:
    """Return the supply of an iterator. Raise AttributeError or NotImplementedError if the iterator has no counters."""
    pinned = iterator._data_queue.qsize() if iterator._pin_memory else 0
    missing = iterator._tasks_outstanding - iterator._worker_result_queue.qsize() - pinned
    return Supply(len(iterator._task_info), max(missing, 0))


@dataclass(frozen=True)
class Process:
    """Functions on the process: wait for the device; return whether another profiler runs; return why the training must
    not be held back, "" if it may be.
    """

    synchronize: Callable[[], None] = lambda: None
    is_busy: Callable[[], bool] = lambda: False
    find_refusal: Callable[[], str] = lambda: ""


@dataclass
class Round:
    """One round of the probe, held before step `first_step` until `began_ns`.

    `ready` is the number of requested batches that were ready then, `fetched` the number of fetches since.
    """

    first_step: int
    iterator: int
    ready: int
    before: int
    waited_ns: int
    began_ns: int
    fetched: int = 1
    ends_ns: list[int] = field(default_factory=list)
    is_measured: bool = False

    def describe(self) -> dict[str, Any]:
        starts = [self.began_ns, *self.ends_ns]
        lengths = [end - start for start, end in zip(starts, self.ends_ns, strict=False)]
        return {"first_step": self.first_step, "step_ns": lengths, "waited_ns": self.waited_ns}


class Prober:
    """The control of the probe. `before_fetch` is called on the training thread before each fetch.

    `tell` is called with the measurements after each round. `fail` is called with an error, which ends the probe.
    """

    def __init__(
        self,
        log: WordLog,
        steps: StepCounter,
        tell: Callable[[dict[str, Any]], None],
        fail: Callable[[Exception], None],
        process: Process | None = None,
    ) -> None:
        self._log, self._steps = log, steps
        self._tell, self._fail = tell, fail
        self._process = process or Process()
        self._ended, self._fetches = steps.ended, steps.fetches
        self._next_step = SETTLED_STEP
        self._round: Round | None = None
        self._tried = 0
        self._left_ns = MOST_WAIT_NS
        self._cost_ns = 0
        self._rounds: list[dict[str, Any]] = []
        self.is_over = False
        self.reason = NO_LOADER.format(first=SETTLED_STEP)
        """Why nothing was measured."""

    def before_fetch(self, iterator: Any) -> None:
        """Begin, continue or end a round, as due. Exceptions raised while the training is held back reach the training."""
        found: list[Supply] = []
        with Edge(self._give_up):
            at_boundary = self._pass_boundary()
            if self._round is not None:
                self._follow(self._round, iterator, at_boundary)
            elif at_boundary and not self.is_over and self._steps.ended >= self._next_step:
                found += self._find_supply(iterator)
        if found:
            self._hold(iterator, found[0])

    @property
    def has_left(self) -> bool:
        """Return whether the probe is over: it will neither measure nor mark further steps."""
        return self.is_over and self._round is None

    def stop(self) -> None:
        """End the current round, because recording pauses."""
        with Edge(self._fail):
            if self._round is not None:
                self._close(self._round)

    def _pass_boundary(self) -> bool:
        """Return whether a step has ended since the last call, with no other fetch or loader start in between.

        If another fetch or start came in between, end the round.
        """
        ended, fetches = self._steps.ended, self._steps.fetches
        has_ended, is_next = ended != self._ended, fetches - self._fetches == 1
        self._ended, self._fetches = ended, fetches
        if self._round is not None and not is_next:  # another epoch, or a loader beside this one
            self._close(self._round)
        return has_ended and is_next

    def _find_supply(self, iterator: Any) -> list[Supply]:
        """Return a list with the supply of the loader if a round can begin now, else an empty list."""
        capacity = getattr(iterator, "_num_workers", 0) * (getattr(iterator, "_prefetch_factor", 0) or 0)
        if not capacity or not hasattr(iterator, "_worker_result_queue"):
            return []
        refusal = self._process.find_refusal() if getattr(iterator, "_in_order", True) else UNORDERED
        if refusal:
            self._end(refusal)
            return []
        supply = look_at(iterator)
        # Near the end of an epoch less is asked for.
        return [supply] if supply.asked >= capacity and not self._process.is_busy() else []

    def _hold(self, iterator: Any, before: Supply) -> None:
        """Wait until all requested batches are made or the time is used up, then begin a round. Exceptions of signal
        handlers pass through to the training."""
        begun, supply = time.perf_counter_ns(), before
        while supply.missing and time.perf_counter_ns() - begun < self._left_ns:
            time.sleep(POLL_S)
            supply = look_at(iterator)
        if before.missing:
            time.sleep(POLL_S)  # the queue also counts batches that a worker is still sending
        self._process.synchronize()
        with Edge(self._give_up):
            self._begin(iterator, before, supply, begun)

    def _begin(self, iterator: Any, before: Supply, supply: Supply, begun: int) -> None:
        waited = time.perf_counter_ns() - begun
        self._left_ns -= waited
        self._cost_ns += waited
        self._tried += 1
        if supply.missing:
            self._end(TOO_SLOW.format(waited_s=waited / 1e9))
        else:
            self.reason = INTERRUPTED
        self._log.write(STALL_START, begun)
        self._log.write(PROBED, 1)
        # The next steps use up the batches made meanwhile, even if nothing is measured.
        ready_before = before.asked - before.missing
        began = time.perf_counter_ns()
        self._round = Round(self._steps.ended + 1, id(iterator), supply.asked, ready_before, waited, began)
        self._round.is_measured = self.is_over
        self._log.write(STALL_END, began)

    def _follow(self, now: Round, iterator: Any, at_boundary: bool) -> None:
        if id(iterator) != now.iterator or (self._process.is_busy() and not now.is_measured):
            self._close(now)
        elif not now.is_measured:
            self._measure(now, iterator, at_boundary)
        elif at_boundary:
            supply = look_at(iterator)
            if supply.asked - supply.missing <= now.before or now.fetched > now.ready + MOST_SETTLING:
                self._close(now)
        now.fetched += 1

    def _measure(self, now: Round, iterator: Any, at_boundary: bool) -> None:
        """Note the end of a step; after the last step with ready batches, also wait for the device."""
        supply = look_at(iterator)
        per_step = now.fetched / (len(now.ends_ns) + 1)
        is_last = now.fetched + (per_step if at_boundary else 0) > now.ready or supply.asked <= supply.missing
        if at_boundary and now.fetched <= now.ready:
            if is_last:
                self._process.synchronize()
            now.ends_ns.append(time.perf_counter_ns())
        now.is_measured = is_last

    def _close(self, now: Round) -> None:
        begun = time.perf_counter_ns()
        self._round = None
        self._log.write(PROBED, 0)
        length = max(self._steps.ended - now.first_step, 0)
        self._next_step = self._steps.ended + max(STEPS_BETWEEN, ROUNDS_BETWEEN * length)
        if now.is_measured and now.ends_ns:
            self._rounds.append(now.describe())
        if sum(len(entry["step_ns"]) for entry in self._rounds) >= WANTED_STEPS or self._tried >= MOST_ROUNDS:
            self.is_over = True
        if now.waited_ns > self._left_ns:  # the next round could not be filled either
            self.is_over = True
        if self._rounds:
            self._tell({"rounds": self._rounds, "cost_ns": self._cost_ns})
        self._note_stall(begun, time.perf_counter_ns())

    def _note_stall(self, begun: int, ended: int) -> None:
        """Log the time between two steps as a stall, so that no step includes it."""
        self._cost_ns += ended - begun
        if ended - begun > STALL_NS:
            self._log.write(STALL_START, begun)
            self._log.write(STALL_END, ended)

    def _end(self, reason: str) -> None:
        self.is_over = True
        if not self._rounds:
            self.reason = reason

    def _give_up(self, error: Exception) -> None:
        self.is_over = True
        self.stop()
        self._fail(error)


class ProbeSignal(Signal):
    name = "probe"
    option = "probe"

    def __init__(self) -> None:
        self._prober: Prober | None = None

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._prober = Prober(
            context.log,
            context.steps,
            lambda found: context.add_fact("probe", found),
            lambda error: context.fail_signal(self.name, error),
            Process(_synchronize, torch.autograd._profiler_enabled, _find_refusal),
        )
        context.fetch_gates.append(self._pass)

    def pause(self) -> None:
        if self._prober is not None:
            self._prober.stop()

    def remove(self) -> None:
        prober = self._prober
        stop_calling(self._pass, self._context.fetch_gates)
        failed = self._context.notes.signals[self.name]["state"] == "failed"
        if prober is not None and not failed and "probe" not in self._context.notes.facts:
            self._context.set_signal(self.name, "unavailable", prober.reason)
            self._context.warn("probe_unavailable", f"The probe measured nothing. {prober.reason}")

    def _pass(self, iterator: Any) -> None:
        assert self._prober is not None
        self._prober.before_fetch(iterator)
        if self._prober.has_left:
            self._context.fetch_gates.remove(self._pass)


def _find_refusal() -> str:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        return SEVERAL_RANKS
    return ""


def _synchronize() -> None:
    """Wait for the device. Otherwise a step whose kernels are only launched would seem to have ended."""
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()


SIGNAL = ProbeSignal
