"""The edge between our clocks and the user's training: whatever goes wrong with a clock ends the clock, nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from collector.edge import log_failure

_log = logging.getLogger("stepscope")


class Guard:
    """Runs steps of our own code. The first that raises is logged, `give_up` is told, and nothing runs any more."""

    def __init__(self, what: str, give_up: Callable[[Exception], None]) -> None:
        self._what = what
        self._give_up = give_up
        self._is_on = True

    def run(self, step: Callable[..., Any], *args: Any) -> None:
        if not self._is_on:
            return
        try:
            step(*args)
        except Exception as error:  # noqa: BLE001  an edge: a clock that fails is taken away, the training goes on
            self._is_on = False
            _log.warning("stepscope: %s is not profiled any more: %r", self._what, error)
            # Taking it away may fail for the same reason.
            with log_failure("%s could not be left clean", self._what):
                self._give_up(error)
