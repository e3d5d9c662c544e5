"""Changes to other people's objects, taken back exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collector.edge import log_failure

_INHERITED = object()


def stop_calling(callback: Callable[..., object], callbacks: list[Callable[..., Any]]) -> None:
    """Take a callback out of those that are called; one that failed is out already."""
    if callback in callbacks:
        callbacks.remove(callback)


class Undo:
    """Changes to other people's objects, each of which `restore` takes back exactly, the last one first."""

    def __init__(self) -> None:
        self._actions: list[Callable[[], None]] = []

    def patch(self, owner: Any, name: str, replacement: Any) -> None:
        """Set an attribute. Restoring sets the old value, or deletes the attribute if it was inherited.

        If somebody else has patched over it since, their value stays: it is theirs, and it calls ours, which passes on.
        """
        old = vars(owner).get(name, _INHERITED)
        setattr(owner, name, replacement)
        stored = vars(owner)[name]

        def restore() -> None:
            if vars(owner).get(name) is not stored:
                return
            if old is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, old)

        self._actions.append(restore)

    def call(self, action: Callable[[], object]) -> None:
        """Call this on restoring, such as the `remove` of a hook's handle."""
        self._actions.append(lambda: (action(), None)[1])

    def restore(self) -> None:
        """Take everything back. One that fails is logged and the others still go."""
        while self._actions:
            with log_failure("could not undo a change"):
                self._actions.pop()()
