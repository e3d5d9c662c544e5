"""Why detailed windows opened, as the collector noted it."""

from __future__ import annotations

from dataclasses import dataclass

from collector.format.schema.manifest import RankManifest, Window

BY_ITSELF = ("outlier", "starvation", "drift")
_MOST_TEXT = 200
_ASKED = {"option": "chosen by the option window", "control": "asked for while the run recorded"}
_BY_DEFAULT = "the default steps of the option window"
DEFAULT_STEPS = (10, 12)
"""The window of a run whose script names none. A rank does not note who named its window, so these are called the default."""


@dataclass(frozen=True)
class WindowReason:
    """A window and why it opened: "opened by itself: step 412 took 6.1× the median".

    `on_demand` says that libkineto took it on a thread of its own.
    """

    window: Window
    text: str
    on_demand: bool


def explain_windows(manifest: RankManifest) -> tuple[WindowReason, ...]:
    """Say of every detailed window of a rank why it opened, in the order of the run."""
    entries = _read_orders(manifest)
    return tuple(_explain(window, entries) for window in manifest.windows)


def find_reasons(manifest: RankManifest) -> tuple[tuple[Window, str], ...]:
    """Return the windows that opened by themselves, each with half a sentence: "step 412 took 6.1× the median".

    The text is that of the last order of its kind before the window, "" where none was noted.
    """
    entries = _read_orders(manifest)
    return tuple(
        (window, _take_text(_find_order(window, entries))) for window in manifest.windows if window.trigger in BY_ITSELF
    )


def _explain(window: Window, entries: list[dict[str, object]]) -> WindowReason:
    if window.trigger not in BY_ITSELF:
        return WindowReason(window, _explain_asked(window), False)
    order = _find_order(window, entries)
    text = _take_text(order)
    return WindowReason(
        window, f"opened by itself: {text}" if text else "opened by itself", order.get("on_demand") is True
    )


def _explain_asked(window: Window) -> str:
    first, last = DEFAULT_STEPS
    if window.trigger == "option" and window.first_step == first and window.last_step <= last:
        return _BY_DEFAULT
    return _ASKED.get(window.trigger, window.trigger[:_MOST_TEXT])


def _read_orders(manifest: RankManifest) -> list[dict[str, object]]:
    noted = manifest.facts.get("triggers", ())
    return [entry for entry in noted if isinstance(entry, dict)] if isinstance(noted, (list, tuple)) else []


def _find_order(window: Window, entries: list[dict[str, object]]) -> dict[str, object]:
    return next((entry for entry in reversed(entries) if _may_open(entry, window)), {})


def _take_text(order: dict[str, object]) -> str:
    return str(order.get("text", ""))[:_MOST_TEXT]


def _may_open(entry: dict[str, object], window: Window) -> bool:
    step = entry.get("step")
    return entry.get("trigger") == window.trigger and isinstance(step, int) and step < window.first_step
