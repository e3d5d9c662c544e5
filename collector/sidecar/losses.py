"""What a run says of the steps that ended in the training and have no row."""

from __future__ import annotations

from collector.format.schema.manifest import Warn
from collector.format.schema.wording import format_number_of, format_part

STEPS_LOST = "steps_lost"


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
