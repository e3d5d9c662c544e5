"""Limits on connections: the time for a client to send a request and to receive the answer, and the number of clients.

uvicorn waits for ever and accepts all clients. So a thousand clients that send a byte a minute would use up the
process's descriptors and memory.
"""

from __future__ import annotations

import asyncio
from array import array
from contextlib import suppress
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_LIMIT_S = 10.0
HEAD_LIMIT_BYTES = 32 << 10
TAKE_LIMIT_S = 30.0
SLOWEST_BYTES_PER_S = 4 << 10
"""Least mean speed of receiving an answer. A client below this speed for `TAKE_LIMIT_S` is dropped; a modem of 1998 was
faster."""
MOST_CONNECTIONS = 1000
MOST_UNSENT_BYTES = 256 << 20
"""Most unsent bytes of all clients in memory; above it the client that has waited longest is dropped."""


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with time limits: on the head of a request, on the rest of a refused body, and on receiving an answer.

    Above `most_connections`, the connection for which the server has waited longest is closed.
    """

    _timer: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None
    _unsent_bytes = 0
    _waiting: ClassVar[dict[PatientProtocol, None]] = {}
    _silent: ClassVar[dict[PatientProtocol, None]] = {}
    most_connections: ClassVar[int] = MOST_CONNECTIONS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > self.most_connections:
            longest = next(iter(self._silent))
            longest._stop()
            longest._give_up()

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()
        self._watch_taking()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_taking()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._stop_taking()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP. If a request of this connection is still running, its answer is dropped."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _watch(self) -> None:
        """Run the timer while the server waits for the head of a request or the rest of a refused body. Otherwise stop
        it.
        """
        theirs = self.conn.their_state
        is_refused = theirs is h11.SEND_BODY and self.conn.our_state in (h11.DONE, h11.MUST_CLOSE)
        if theirs is not h11.IDLE and not is_refused:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_LIMIT_S, self._give_up)
            self._silent[self] = None

    def _stop(self) -> None:
        self._silent.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _watch_taking(self) -> None:
        """Start the checks of how much the client receives.

        While the unsent bytes of all clients exceed `MOST_UNSENT_BYTES`, drop the client that has waited longest.
        """
        if self._taking is not None or not self.transport.get_write_buffer_size():
            return
        self._waiting[self] = None
        self._look_again()
        while sum(other.transport.get_write_buffer_size() for other in self._waiting) > MOST_UNSENT_BYTES:
            longest = next(iter(self._waiting))
            if longest is self:
                break  # the only one: the time limit is enough
            longest._drop()

    def _look_again(self) -> None:
        self._unsent_bytes = _count_unsent(self.transport)
        self._taking = self.loop.call_later(TAKE_LIMIT_S, self._check_taking)

    def _check_taking(self) -> None:
        unsent = _count_unsent(self.transport)
        taken = self._unsent_bytes - unsent
        if not self.transport.get_write_buffer_size():
            self._stop_taking()
        elif 0 <= taken < SLOWEST_BYTES_PER_S * TAKE_LIMIT_S:
            self._drop()
        else:  # more was written meanwhile, which happens only when the rest was taken
            self._look_again()

    def _stop_taking(self) -> None:
        self._waiting.pop(self, None)
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _drop(self) -> None:
        self._stop_taking()
        self.transport.abort()


def _count_unsent(transport: asyncio.Transport) -> int:
    """Return the number of bytes that the client has not confirmed, with the system's buffer if its size is known.

    Without the system's buffer, a slow reader would be hidden for minutes: the buffer takes more only once a third of
    it is free.
    """
    queued = array("i", [0])
    with suppress(ImportError, AttributeError, OSError, ValueError):
        import fcntl
        import termios

        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, queued)
    return transport.get_write_buffer_size() + queued[0]
