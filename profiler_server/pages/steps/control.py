"""The form that re-targets the detailed window of a run that records."""

from __future__ import annotations

import os
from dataclasses import dataclass

from collector.format.run import RankRun, Run
from collector.format.schema.control import WindowRequest, read_control
from collector.format.schema.layout import control_file
from profiler_server.format import form_plural, format_count


@dataclass(frozen=True)
class WindowControl:
    """What was asked for last. `can_order` is False where windows are off; `is_awaited` until the window was taken."""

    sentence: str
    can_order: bool
    is_awaited: bool = False


def view_window_control(run: Run, rank: RankRun) -> WindowControl | None:
    """Return the form, or None when nobody is recording any more."""
    if rank.state != "recording":
        return None
    signal = next((entry for entry in rank.manifest.signals if entry.name == "window"), None)
    if signal is not None and signal.state in ("off", "failed"):
        return WindowControl(f"This run takes no detailed windows: {signal.reason}", False)
    path = control_file(run.path)
    try:
        asked = read_control(run.path)
        asked_unix_ns = os.stat(path).st_mtime_ns
    except FileNotFoundError:
        hint = f"A detailed window shows every operator of a few steps. Editing {path} does the same as this form."
        return WindowControl(hint, True)
    except (OSError, ValueError) as error:
        return WindowControl(f"{path} cannot be read: {error}.", True)
    return _describe(asked, asked_unix_ns - run.manifest.epoch_unix_ns, rank)


def _describe(asked: WindowRequest, asked_ns: int, rank: RankRun) -> WindowControl:
    taken = [window for window in rank.manifest.windows if window.trigger == "control"]
    wish = f"Asked for last: {_name_steps(asked)}."
    if not taken or taken[-1].start_ns < asked_ns:
        return WindowControl(f"{wish} This page shows the window as soon as it is taken.", True, is_awaited=True)
    last = taken[-1]
    got = WindowRequest(last.first_step, last.last_step - last.first_step + 1)
    return WindowControl(f"{wish} Taken last: {_name_steps(got)}.", True)


def _name_steps(request: WindowRequest) -> str:
    if request.first == 0:
        number = "" if request.count == 1 else f"{format_count(request.count)} "
        return f"the next {number}{form_plural('step') if number else 'step'}"
    if request.count == 1:
        return f"step {format_count(request.first)}"
    return f"steps {format_count(request.first)} to {format_count(request.last)}"
