"""What a run says of the steps that ended in the training and have no row, and of what could not be written."""

from __future__ import annotations

import errno
from pathlib import Path

from collector.format.schema.manifest import Warn
from collector.format.schema.recovery import spell_recovery
from collector.format.schema.wording import format_number_of, format_part

STEPS_LOST = "steps_lost"
STEPS_UNSEEN = "steps_unseen"
INPUT_UNSEEN = "input_unseen"
NO_STEP_FOUND = "No training step was found: call profiler.step() after each step."


def warn_of_lost_steps(ended: int, recorded: int) -> tuple[Warn, ...]:
    """Return the warning of a run whose training thread ended more steps than it has rows, none of any other."""
    if recorded >= ended:
        return ()
    text = (
        f"{format_part(ended - recorded, ended)} of the steps were lost: {format_number_of(ended, 'step')} ended and "
        f"{recorded:,} were recorded. The recorder process was held up until the event log overflowed (it was stopped, "
        "or its disk or processor was blocked). Every figure covers the recorded steps only."
    )
    return (Warn(STEPS_LOST, text),)


def spell_problem(error: OSError, rank_folder: Path) -> str:
    """Return what keeps the tables of a rank from being written, and what to do."""
    reason = error.strerror or str(error)
    where = error.filename or rank_folder
    remedy = spell_remedy(error)
    command = spell_recovery(rank_folder)
    return f"The tables could not be written to their end: {reason} ({where}). {remedy}, then run `{command}`."


def spell_remedy(error: OSError) -> str:
    """Return what the user can do about an error of the system."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free space on the disk"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "Raise the limit of open files (ulimit -n)"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "Make the folder writable, or choose another output_path"
    if error.errno in (errno.ENOMEM, errno.EAGAIN):
        return "Free memory"
    return "See to the disk"
