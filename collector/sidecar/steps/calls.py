"""Calls of collectives, read from the event log of the training thread: the kind of each call, its bytes, and the end
of the wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from collector.ring import codes
from collector.ring.packing import unpack_call

_MOST_OPEN = 512


@dataclass(slots=True)
class Call:
    """A call of a collective. Times are in ns.

    `end` is the end of the last wait for it. `held` is the total time for which it held the training thread. `is_open`
    is True while a wait is still to come. `what` is an index into the notes' list of collectives.
    """

    what: int
    start: int
    end: int
    held: int
    is_open: bool
    bytes: int | None = None


class CallLog:
    def __init__(self) -> None:
        self._span = (0, 0)
        self._reduction: tuple[int, int, int, int] | None = None
        self._waited_for: dict[int, Call] = {}
        self._last: Call | None = None
        self._awaited = 0

    @property
    def awaited(self) -> Call | None:
        """The call that the training thread waits for, if the log named the call before the wait."""
        return self._waited_for.get(self._awaited)

    def hold(self, start: int, end: int) -> None:
        """Note a span of time, `start` to `end`, in which a collective held the training thread.

        The span belongs to the awaited call if there is one. Otherwise it belongs to the call that the next words
        describe.
        """
        self._span = start, end
        if self._awaited:
            self.wait(self._awaited)
            self._awaited = 0

    def feed(self, code: int, value: int) -> Call | None:
        """Take in a word about a call: its `code` and its payload. Return the new call if the word adds a call, else
        None.
        """
        if code == codes.CALLED:
            return self.add(value)
        if code == codes.CALLED_BYTES:
            self.measure(value)
        elif code == codes.AWAITED:
            self._awaited = value
        elif code == codes.REDUCED_FROM:
            self.date_reduction(value)
        return None

    def lose(self) -> None:
        """Forget the awaited call, because it may have ended in words that are missing."""
        self._awaited = 0

    def reduce(self, duration: int, held: int, left: int) -> None:
        """Note that a backward reduced gradients. The next words give the kind and the start of this reduction.

        `held` is the time in ns that the backward waited for the reduction, `left` the end of this wait. Both are 0
        without a wait.
        """
        self._reduction = 0, duration, held, left

    def date_reduction(self, start: int) -> None:
        if self._reduction is not None:
            self._reduction = start, *self._reduction[1:]

    def add(self, word: int) -> Call:
        """Return the call that the packed word describes. Its times come from the last `reduce`, else from the last
        `hold`.
        """
        serial, is_open, what = unpack_call(word)
        if self._reduction is not None:
            start, duration, held, left = self._reduction
            # The training leaves it a little after its end: that moment is what ranks have in common.
            call = Call(what, start, max(start + duration, left), held, False)
            self._reduction = None
        else:
            start, end = self._span
            call = Call(what, start, end, end - start, is_open)
        if call.is_open:
            self._waited_for[serial] = call
            while len(self._waited_for) > _MOST_OPEN:
                self._waited_for.pop(next(iter(self._waited_for))).is_open = False
        self._last = call
        return call

    def measure(self, size: int) -> None:
        if self._last is not None:
            self._last.bytes = size

    def wait(self, serial: int) -> None:
        """Note that the wait for the call with this serial number has ended: the span of the last `hold` was this wait.
        An unknown serial number is ignored.
        """
        call = self._waited_for.pop(serial, None)
        if call is not None:
            start, end = self._span
            call.end, call.held, call.is_open = end, call.held + end - start, False
