"""Calls of collectives as the word log tells them: what was called, how much was sent, and when it had been waited for."""

from __future__ import annotations

from dataclasses import dataclass

from collector.ring import codes
from collector.ring.packing import unpack_call

_MOST_OPEN = 512


@dataclass(slots=True)
class Call:
    """`end` is that of the last wait for it, `held` how long the training thread stood still for it. Times are ns.

    `is_open` while a wait is still to come. `what` is a place in the notes' list of collectives.
    """

    what: int
    start: int
    end: int
    held: int
    is_open: bool
    bytes: int | None = None


class CallLog:
    """Makes calls of words, in order."""

    def __init__(self) -> None:
        self._span = (0, 0)
        self._reduction: tuple[int, int, int, int] | None = None
        self._waited_for: dict[int, Call] = {}
        self._last: Call | None = None
        self._awaited = 0

    @property
    def awaited(self) -> Call | None:
        """The call that the training thread is waiting for, as far as it was said before the wait."""
        return self._waited_for.get(self._awaited)

    def hold(self, start: int, end: int) -> None:
        """The training thread was in a collective: the one that it was waiting for, or one that follows."""
        self._span = start, end
        if self._awaited:
            self.wait(self._awaited)
            self._awaited = 0

    def feed(self, code: int, value: int) -> Call | None:
        """Take in a word that tells of a call; return the call that it adds, if it does."""
        if code == codes.CALLED:
            return self.add(value)
        if code == codes.CALLED_BYTES:
            self.measure(value)
        elif code == codes.AWAITED:
            self._awaited = value
        elif code == codes.WAITED:
            self.wait(value)
        elif code == codes.REDUCED_FROM:
            self.date_reduction(value)
        return None

    def lose(self) -> None:
        """Words are missing: what was waited for may have ended."""
        self._awaited = 0

    def reduce(self, duration: int, held: int, left: int) -> None:
        """A backward has reduced its gradients and was held for it until `left`, 0 for not at all.

        When the reduction began follows, and what it was.
        """
        self._reduction = 0, duration, held, left

    def date_reduction(self, start: int) -> None:
        if self._reduction is not None:
            self._reduction = start, *self._reduction[1:]

    def add(self, word: int) -> Call:
        """Make the call that the word describes, of the last span or reduction."""
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
        """Give the last call its bytes."""
        if self._last is not None:
            self._last.bytes = size

    def wait(self, serial: int) -> None:
        """The last span was the wait for a call."""
        call = self._waited_for.pop(serial, None)
        if call is not None:
            start, end = self._span
            call.end, call.held, call.is_open = end, call.held + end - start, False
