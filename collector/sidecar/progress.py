"""How far the words have become rows: what another process needs to go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from collector.sidecar.ahead import Ahead, Batch


@dataclass
class State:
    """What outlives a row; enough to go on from the start of the open one."""

    step: int = 0
    started: bool = False
    explicit: bool = False
    inferring: bool = False
    """Models are called again and again, and nothing has trained: each call of the first one begins a batch."""
    detailed: bool = False
    without_gradients: int = 0
    """Forwards without gradients in the last training step: a teacher's, or none."""
    position: int = 1
    start: int | None = None
    ahead: Ahead = ()
    """What was fetched for steps to come."""
    probed: bool = False

    def moved(self, position: int, start: int) -> State:
        """Return the state at the start of another row."""
        known = (self.step, self.started, self.explicit, self.inferring, self.detailed, self.without_gradients)
        return State(*known, position, start, self.ahead, self.probed)


def encode_state(state: State) -> dict[str, Any]:
    return dict(vars(state))


def decode_state(raw: dict[str, Any]) -> State:
    ahead = tuple(Batch(*batch) for batch in raw.get("ahead", ()))
    return State(**{**raw, "ahead": ahead})
