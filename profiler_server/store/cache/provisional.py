"""Answers that another will take the place of though no file changes: those that wait for work in the background."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Watch:
    """What was found out while one request was answered."""

    is_provisional: bool = False


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


def watch_request() -> Watch:
    """Watch what is done from here on in this context, and in the threads that it starts."""
    watch = Watch()
    _WATCH.set(watch)
    return watch


def note_provisional() -> None:
    """Say that the answer under way lacks something that is still being computed, or that may go well next time."""
    watch = _WATCH.get()
    if watch is not None:
        watch.is_provisional = True
