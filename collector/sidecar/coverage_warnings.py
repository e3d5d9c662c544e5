"""Warnings about gaps in a run: training steps or data loading that the hooks did not see, steps without a row, tables
that cannot be written.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from collector.format.phases import DATA_WAIT, GAP, H2D, TAIL
from collector.format.schema.layout import spell_recovery
from collector.format.schema.manifest import Warn
from collector.format.schema.wording import format_number_of, format_part, format_percent

if TYPE_CHECKING:  # `stepscope run` imports this before the script, which must not wait for numpy
    from collector.sidecar.steps.steady import Ints

STEPS_LOST = "steps_lost"
STEPS_UNSEEN = "steps_unseen"
INPUT_UNSEEN = "input_unseen"
NO_STEP_FOUND = "No training step was found: call profiler.step() after each step."


def warn_of_lost_steps(ended: int, recorded: int) -> tuple[Warn, ...]:
    """Return a warning if more steps have `ended` on the training thread than have a row (`recorded`)."""
    if recorded >= ended:
        return ()
    text = (
        f"{format_part(ended - recorded, ended)} of the steps were lost: {format_number_of(ended, 'step')} ended and "
        f"{recorded:,} were recorded. The recorder process was held up until the event log overflowed (it was stopped, "
        "or its disk or processor was blocked). Every figure covers the recorded steps only."
    )
    return (Warn(STEPS_LOST, text),)


def spell_problem(error: OSError, rank_folder: Path) -> str:
    reason = error.strerror or str(error)
    where = error.filename or rank_folder
    remedy = spell_remedy(error)
    command = spell_recovery(rank_folder)
    return f"The tables could not be written to their end: {reason} ({where}). {remedy}, then run `{command}`."


def spell_remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free space on the disk"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "Raise the limit of open files (ulimit -n)"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "Make the folder writable, or choose another output_path"
    if error.errno in (errno.ENOMEM, errno.EAGAIN):
        return "Free memory"
    return "See to the disk"


UNSEEN_FRAC = 0.1
"""Share of a step outside of known calls above which unseen input is suspected, if most steps exceed it."""
LEAST_STEPS = 5
_INPUT = (
    "No input of the training was seen: no DataLoader, and nothing that the script marked. In {count} of {steps} steps, "
    "more than {share} of the time lies outside of every known call. If that gap is your input, wrap it: "
    "for batch in stepscope.watch(batches)."
)


@dataclass
class Seen:
    """Sums over all training steps and evaluation batches of the run so far. `train_ns` is the time of the steps,
    `input_ns` the time that they waited for data.

    `gapped_steps` counts the steps that lie outside of known calls for more than UNSEEN_FRAC of their time.
    `batches_ns` is the time of all batches. `first_end_ns` is the end of the first step, in ns of the run.
    """

    steps: int = 0
    train_ns: int = 0
    input_ns: int = 0
    gapped_steps: int = 0
    batches: int = 0
    batches_ns: int = 0
    first_end_ns: int = 0

    def add(self, durations_ns: Ints, phases_ns: Ints) -> None:
        """Add training steps: `durations_ns` per step, `phases_ns` with a row per step and a column per phase."""
        outside_ns = phases_ns[:, (GAP, H2D, TAIL)].sum(1)
        self.steps += len(durations_ns)
        self.train_ns += int(durations_ns.sum())
        self.input_ns += int(phases_ns[:, DATA_WAIT].sum())
        self.gapped_steps += int((outside_ns > UNSEEN_FRAC * durations_ns).sum())

    def add_batch(self, duration_ns: int) -> None:
        self.batches += 1
        self.batches_ns += duration_ns

    def list_warnings(self, is_over: bool) -> tuple[Warn, ...]:
        """Return warnings that training steps or data loading were not seen; empty if both were. `is_over` is True once
        the run has ended: only then a run without any steps or batches gets a warning.
        """
        if is_over and not self.steps and not self.batches:
            return (Warn(STEPS_UNSEEN, NO_STEP_FOUND),)
        if self.input_ns or self.steps < LEAST_STEPS or 2 * self.gapped_steps <= self.steps:
            return ()
        return (
            Warn(
                INPUT_UNSEEN,
                _INPUT.format(count=self.gapped_steps, steps=self.steps, share=format_percent(UNSEEN_FRAC)),
            ),
        )
