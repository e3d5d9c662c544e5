"""Limits of the rules on work whose result is never used."""

from __future__ import annotations

UNUSED_GRADIENTS_FRAC = 0.3
"""Without a detailed window, unused gradients are reported if this share of the parameters with gradients has no
optimizer. A few, such as those of an unused head, cost little."""

NEEDLESS_STEP_FRAC = 0.10
"""Gradients that no update uses, and padding, are reported if they take at least this share of the step. The gradients
of the second model of a pair are often discarded on purpose, at a smaller share."""

UNRECORDED_FRAC = 0.12
"""The share that a forward without gradients saves on processors, because its results are freed at once: 12 and 13 % in
two frozen backbones that were measured."""

UNUSED_LINE_FRAC = 0.5
"""A line is named if it has at least this share of the needless computation."""

RECORDED_FRAC = 0.3
"""Gradients are recorded for nothing if at least this share of the operators records them, in a window without a
backward."""

PADDED_FRAC = 0.25
"""Padding is reported if it takes at least this share of the batches."""

LONGEST_FRAC = 0.9
"""Batches are wider than they need to be if their longest row takes less than this share of the width."""

LEAST_LOOKS = 2
"""The number of steps that must be examined before a batch counts as padded: `collector.signals.calls`."""

LEAST_REPEATS = 3
"""The number of steps that must be examined before a call counts as repeated."""

OFTEN_FRAC = 0.9
"""A call is repeated if its result had occurred before in at least this share of the examined steps."""

LEAST_KNOWN = 3
"""The least number of rows of a call without gradients that must have occurred before with the same result. In shuffled
epochs only few of the examined rows occur twice. The number of all repeated rows is unknown, so the promise has a
condition."""

REPEATED_FRAC = 0.05
"""Repeated calls and operators are reported if they take this share of the step."""

SPARE_FRAC = 0.12
"""Rows that are computed and dropped are reported if they take this share of the step. The last block of a transformer
computes them on purpose, where only one position is read."""

LAUNCHING_FRAC = 0.9
"""A line with this share of the step only starts a loop or a model of a library, such as `trainer.train()`: what that
computes cannot be changed there."""

REPEATED_LINE_FRAC = 0.5
"""A line is named if it has at least this share of the repeated operators."""
