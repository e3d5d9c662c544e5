"""Save sums that a signal keeps: after so many steps, ever rarer, and at the end."""

from __future__ import annotations

from collections.abc import Callable

from collector.context.signals import SignalContext

SAVED_AFTER = (20, 100, 500, 2_500, 12_500, 62_500)
"""Steps after which sums are saved: a run that is killed keeps what it had then."""


class Milestones:
    """Calls `save` on the training thread at each of them. What it raises fails the signal of that name."""

    def __init__(self, context: SignalContext, name: str, save: Callable[[], None]) -> None:
        self._context = context
        self._name = name
        self._save = save
        self._pending = list(SAVED_AFTER)
        context.occasions.append(self._look)

    def finish(self) -> None:
        """Save for the last time."""
        self._stop()
        with self._context.shielded(self._name):
            self._save()

    def _look(self, ended: int) -> None:
        if ended < self._pending[0]:
            return
        self._pending = [step for step in self._pending if step > ended]
        if not self._pending:
            self._stop()
        with self._context.shielded(self._name):
            self._save()

    def _stop(self) -> None:
        if self._look in self._context.occasions:
            self._context.occasions.remove(self._look)
