"""The form that re-targets the detailed window of a run that records."""

from __future__ import annotations

from dataclasses import dataclass

from collector.run import RankRun, Run
from collector.schema.control import WindowRequest, read_control
from collector.schema.layout import control_file
from profiler_server.format import format_count

_AHEAD = 10
"""The form proposes a window so many steps after the last one that is known: it takes a second to reach the training."""


@dataclass(frozen=True)
class WindowControl:
    """What was asked for last, and the step that the form proposes. `can_order` is False where windows are off."""

    sentence: str
    first: int
    can_order: bool


def view_window_control(run: Run, rank: RankRun) -> WindowControl | None:
    """Return the form, or None when nobody is recording any more."""
    if rank.state != "recording":
        return None
    signal = next((entry for entry in rank.manifest.signals if entry.name == "window"), None)
    if signal is not None and signal.state in ("off", "failed"):
        return WindowControl(f"This run takes no detailed windows: {signal.reason}", 1, False)
    steps = rank.table("steps", ("step",))["step"]
    last = int(steps[-1].as_py()) if len(steps) else 0
    return WindowControl(_describe(run, rank), last + _AHEAD, True)


def _describe(run: Run, rank: RankRun) -> str:
    path = control_file(run.path)
    try:
        asked = read_control(run.path)
    except FileNotFoundError:
        return f"A detailed window shows every operator of a few steps. Editing {path} does the same as this form."
    except (OSError, ValueError) as error:
        return f"{path} cannot be read: {error}."
    return f"Asked for last: {_name_steps(asked)}. {_describe_taken(rank)}"


def _describe_taken(rank: RankRun) -> str:
    taken = [window for window in rank.manifest.windows if window.trigger == "control"]
    if not taken:
        return "No window that was asked for has been taken yet."
    window = taken[-1]
    return f"Taken last: {_name_steps(WindowRequest(window.first_step, window.last_step - window.first_step + 1))}."


def _name_steps(request: WindowRequest) -> str:
    if request.count == 1:
        return f"step {format_count(request.first)}"
    return f"steps {format_count(request.first)} to {format_count(request.last)}"
