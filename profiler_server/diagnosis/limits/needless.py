"""Limits of the rules on work whose result is never used."""

from __future__ import annotations

UNUSED_GRADIENTS_FRAC = 0.3
"""Without a detailed window, unused gradients are reported if this share of the parameters with gradients has no
optimizer. A few, such as those of an unused head, cost little."""

NEEDLESS_STEP_FRAC = 0.10
"""Share of the step that is spent on gradients that no update uses, or on padding, from which it is reported. Gradients
of the second model of a pair are often thrown away at less than this."""

UNRECORDED_FRAC = 0.12
"""A forward without gradients takes this share less on processors, as its results are freed at once: 12 and 13 % in two
frozen backbones that were measured."""

UNUSED_LINE_FRAC = 0.5
"""A line is named if it has this share of what is computed for nothing."""

RECORDED_FRAC = 0.3
"""Gradients are recorded for nothing if at least this share of the operators records them in a window without a
backward."""

PADDED_FRAC = 0.25
"""Padding is reported if it takes at least this share of the batches."""

LONGEST_FRAC = 0.9
"""Batches are wider than they need to be if their longest row takes less than this share of the width."""

LEAST_LOOKS = 2
"""Steps that must have been looked at before a batch counts as padded: `collector.signals.calls`."""

LEAST_REPEATS = 3
"""Steps that must have been looked at before a call counts as repeated."""

OFTEN_FRAC = 0.9
"""A call is repeated if its result was there before in this share of the steps looked at."""

LEAST_KNOWN = 3
"""So many rows of a call without gradients must have been there before, with the same result. In shuffled epochs few of the
rows that are looked at meet again; how many come back in all is not known, so the promise has a condition."""

REPEATED_FRAC = 0.05
"""Repeated calls are reported if they take this share of the step."""
