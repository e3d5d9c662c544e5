"""Record compilations, recompilations and graph breaks of torch.compile, each with its reason.

Dynamo keeps metrics of its most recent compilations anyway. They are read when a step ends. Nothing is patched,
registered or imported, so graphs and breaks are the same as without Stepscope.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from collector.context.hooks import stop_calling
from collector.context.signals import Signal, SignalContext
from collector.edge import Edge
from collector.ring.compiles import CompileNote, write_compiles

MOST_NOTES = 10_000
_MOST_REASON = 1000
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)")


class CompilesSignal(Signal):
    name = "compiles"

    def __init__(self) -> None:
        self._last: Any = None
        self._written = 0

    def install(self, context: SignalContext) -> None:
        self._context = context
        metrics = _find_metrics()
        self._last = metrics[-1] if metrics else None
        context.occasions.append(self._on_occasion)

    def remove(self) -> None:
        self._on_occasion(self._context.steps.ended)

    def _on_occasion(self, ended: int) -> None:
        metrics = _find_metrics()
        if not metrics or metrics[-1] is self._last:
            return
        with Edge(self._give_up):  # the figures are private, another PyTorch may shape them otherwise
            notes = [note for entry in self._list_new(metrics) for note in _describe(entry, ended)]
            if notes and self._written < MOST_NOTES:
                write_compiles(self._context.events, notes)
                self._written += len(notes)

    def _give_up(self, error: Exception) -> None:
        stop_calling(self._on_occasion, self._context.occasions)
        self._context.fail_signal(self.name, error)

    def _list_new(self, metrics: Any) -> list[Any]:
        new = []
        for entry in reversed(metrics):
            if entry is self._last:
                break
            new.append(entry)
        self._last = metrics[-1]
        return new[::-1]


def _find_metrics() -> Any:
    return getattr(sys.modules.get("torch._dynamo.utils"), "_compilation_metrics", None)


def _describe(entry: Any, step: int) -> Iterator[CompileNote]:
    """Yield a note of a compilation, then notes of its graph breaks. A failed compilation counts as a break of its
    whole function. Yield nothing for metrics of another event.
    """
    if getattr(entry, "is_runtime", False) or entry.start_time_us is None:
        return
    start, duration = entry.start_time_us * 1000, (entry.duration_us or 0) * 1000
    name, reason = _name(entry), entry.recompile_reason
    yield CompileNote(step, "recompile" if reason else "compile", start, duration, name, _shorten(reason))
    breaks = sys.modules["torch._dynamo.utils"].counters["graph_break"]
    for restart in sorted(entry.restart_reasons or ()):
        if restart in breaks:  # analysis is begun anew for other reasons as well
            yield CompileNote(step, "graph_break", start, 0, name, _shorten(restart))
    if entry.fail_reason:
        yield CompileNote(step, "graph_break", start, 0, name, _shorten(entry.fail_reason))


def _name(entry: Any) -> str:
    """Return the name of the compiled function, such as "forward (model.py:12)".

    The part of a function after a graph break has a name such as "forward from line 20 (model.py:12)".
    """
    if not entry.co_name:
        return "backward" if entry.is_forward is False else "(unknown)"
    resumed = _RESUMED.fullmatch(entry.co_name)
    name = f"{resumed[1]} from line {resumed[2]}" if resumed else entry.co_name
    return f"{name} ({PurePath(entry.co_filename or '?').name}:{entry.co_firstlineno})"


def _shorten(reason: str | None) -> str | None:
    return None if reason is None else reason.strip()[:_MOST_REASON]


SIGNAL = CompilesSignal
