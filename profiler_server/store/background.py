"""Work that no request waits for: one piece at a time, in a thread that ends when nothing is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

MOST_WAITING = 32
"""What is started beyond that is not taken; whoever needs it asks again."""
HEAD_START_S = 0.3
"""The page that starts something is sent first: both would share one interpreter."""


class Background:
    """Does each piece of work once, whoever starts it again before it is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, Callable[[], object]] = {}

    def start(self, key: Hashable, work: Callable[[], object]) -> None:
        """Have some work done, which must not raise."""
        with self._lock:
            if key in self._waiting or len(self._waiting) >= MOST_WAITING:
                return
            self._waiting[key] = work
            if len(self._waiting) == 1:
                threading.Thread(target=self._run, name="background", daemon=True).start()

    def drop_waiting(self) -> None:
        """Forget what has not begun; what is under way ends by itself, or with the process."""
        with self._lock:
            for key in list(self._waiting)[1:]:
                del self._waiting[key]

    def _run(self) -> None:
        time.sleep(HEAD_START_S)
        while True:
            with self._lock:
                key, work = next(iter(self._waiting.items()))
            try:
                work()
            finally:
                with self._lock:
                    del self._waiting[key]
                    is_last = not self._waiting
            if is_last:
                return


BACKGROUND = Background()
"""What pages of this process wait for."""
