"""How a run ended: by an exception, or with the process; and how many of its steps were recorded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from collector.format.schema.facts import UNTOLD
from collector.format.schema.wording import format_number_of
from collector.sidecar.coverage_warnings import INPUT_UNSEEN, STEPS_LOST, STEPS_UNSEEN

if TYPE_CHECKING:  # profiler-run imports this before the script, which must not wait for pyarrow
    from collector.format.run import RankRun

MOST_CHARACTERS = 200
_TRACEBACK = "Traceback (most recent call last):"
NO_STEPS = "a run without a training step"
_exits: list[SystemExit] = []


def note_exit(error: SystemExit) -> None:
    """Keep what nobody else does: the interpreter forgets a SystemExit before it calls who waits for its end."""
    _exits[:] = [error]


def find_last_error() -> BaseException | None:
    """Return what ends this process, None if that is not known.

    In a child of multiprocessing it is still on its way. Elsewhere the interpreter has kept it, before it called any
    `sys.excepthook`: so none is needed here, and the user's are left alone. An interactive session keeps every error
    there, those after which it went on too.
    """
    if (error := sys.exc_info()[1]) is not None:
        return error
    if _exits:
        return _exits[0]
    kept = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    return kept if isinstance(kept, BaseException) else None


def describe_error(error: BaseException | None) -> str:
    """Return the type of an exception and the start of its message, "" for none and for an exit without a failure.

    An exit from within an `except` is described by what was caught there. What the message itself raises passes through.
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
    """Return the message of an error from another process without the traceback in it: what went wrong is its last line."""
    before, found, traceback = message.partition(_TRACEBACK)
    if not found:
        return message
    first = before.strip().removesuffix("Original").rstrip()
    return f"{first} {traceback.strip().rpartition(chr(10))[2]}".strip()


def spell_end(ended_by: str, steps: int) -> str:
    """Return the note for readers of the run. Batches of a run that only infers are no steps."""
    when = f"after {format_number_of(steps, 'step')}" if steps else "without a training step"
    if ended_by == UNTOLD:
        return f"The script left before analyse(), {when}: at its last line or by sys.exit()."
    return f"The script was ended {when} by {ended_by}"


def count_recorded(rank: RankRun) -> str:
    """Return how many training steps have a row, in words; batches, for a run that only infers."""
    steps = rank.count_steps()
    batches = 0 if steps else rank.count_steps("eval")
    if batches:
        return format_number_of(batches, "batch")
    return format_number_of(steps, "step") if steps else NO_STEPS


def find_missing(rank: RankRun) -> tuple[str, ...]:
    """Return what of a finished rank was not seen, its steps or its input, in sentences."""
    codes = (STEPS_LOST, STEPS_UNSEEN, INPUT_UNSEEN)
    return tuple(warning.text for warning in rank.manifest.warnings if warning.code in codes)
