"""Describe how a run ended, for its notes and the terminal: the exception or exit, and the number of recorded steps."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from collector.format.schema.facts import UNTOLD
from collector.format.schema.wording import format_number_of
from collector.sidecar.coverage_warnings import INPUT_UNSEEN, STEPS_LOST, STEPS_UNSEEN

if TYPE_CHECKING:  # `stepscope run` imports this before the script, which must not wait for pyarrow
    from collector.format.run import RankRun

MOST_CHARACTERS = 200
_TRACEBACK = "Traceback (most recent call last):"
NO_STEPS = "a run without a training step"
_exits: list[SystemExit] = []


def note_exit(error: SystemExit) -> None:
    """Keep the SystemExit that ends the script, because the interpreter forgets it before the exit handlers run."""
    _exits[:] = [error]


def find_last_error() -> BaseException | None:
    """Return the exception that ends this process, None if there is none or it is unknown.

    In a child of multiprocessing the exception is still being handled. Elsewhere the interpreter has stored the
    exception before any `sys.excepthook` runs, so no hook of ours is needed. An interactive session stores every error
    in this way, even if the session went on.
    """
    if (error := sys.exc_info()[1]) is not None:
        return error
    if _exits:
        return _exits[0]
    kept = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    return kept if isinstance(kept, BaseException) else None


def describe_error(error: BaseException | None) -> str:
    """Return the type of an exception and the start of its message; "" for None and for an exit with code None or 0.

    Another exit from within an `except` is described by the caught exception. Errors of `str(error)` pass through.
    """
    if isinstance(error, SystemExit):
        if error.code is None or error.code == 0:
            return ""
        if error.__context__ is not None and not error.__suppress_context__:
            return describe_error(error.__context__)
    if error is None:
        return ""
    message = " ".join(_leave_out_traceback(str(error))[:MOST_CHARACTERS].split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _leave_out_traceback(message: str) -> str:
    """Shorten another process's error message to the text before its traceback and the traceback's last line."""
    before, found, traceback = message.partition(_TRACEBACK)
    if not found:
        return message
    first = before.strip().removesuffix("Original").rstrip()
    return f"{first} {traceback.strip().rpartition(chr(10))[2]}".strip()


def spell_end(ended_by: str, steps: int) -> str:
    """Return a sentence on why the run ended and after how many training steps. `ended_by` is UNTOLD, or a description
    as of `describe_error`."""
    when = f"after {format_number_of(steps, 'step')}" if steps else "without a training step"
    if ended_by == UNTOLD:
        return f"The script left before analyse(), {when}: at its last line or by sys.exit()."
    return f"The script was ended {when} by {ended_by}"


def count_recorded(rank: RankRun) -> str:
    """Return the number of recorded training steps in words, such as "20 steps". Without steps, return the number of
    batches or calls of inference; without either, NO_STEPS."""
    steps = rank.count_steps()
    batches = 0 if steps else rank.count_steps("eval")
    if batches:
        from collector.format.rank import read_step_rows

        return format_number_of(batches, read_step_rows(rank, ("kind", "step")).noun)
    return format_number_of(steps, "step") if steps else NO_STEPS


def find_missing(rank: RankRun) -> tuple[str, ...]:
    """Return sentences on what a finished rank failed to record: some or all of its steps, or its waits for input."""
    codes = (STEPS_LOST, STEPS_UNSEEN, INPUT_UNSEEN)
    return tuple(warning.text for warning in rank.manifest.warnings if warning.code in codes)
