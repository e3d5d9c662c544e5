"""How long a connection may take to say what it wants. uvicorn waits for ever, so that a thousand clients which send a
byte a minute would use up the descriptors of the process.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_LIMIT_S = 10.0
HEAD_LIMIT_BYTES = 32 << 10


class PatientProtocol(H11Protocol):
    """HTTP/1.1 where the head of a request, and what is left of a body that was refused, arrive in time or never."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Run the timer exactly while the client has something to send that nobody else waits for."""
        theirs = self.conn.their_state
        is_refused = theirs is h11.SEND_BODY and self.conn.our_state in (h11.DONE, h11.MUST_CLOSE)
        if theirs is not h11.IDLE and not is_refused:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_LIMIT_S, self._give_up)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
