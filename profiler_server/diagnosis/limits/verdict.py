"""Limits for the choice and order of suggested changes, and for what a run is bound by."""

from __future__ import annotations

LEAST_CHECK_FRAC, MOST_CHECK_FRAC = 0.75, 1.33
"""The loader's model is trusted if its step for the unchanged run is between these multiples of the measured step.
Otherwise no change to loading is predicted."""

CLOSE_FRAC = 0.10
"""Changes whose gain is within this share of the best are ordered by effort."""

MOST_DOUBT_FRAC = 0.25
"""A step time is shown if the doubt about it is at most this share of the saving."""

LEAST_LOW_FRAC = 0.10
"""The lower end of a range is at least this share of the predicted step: no change makes a step free."""

EASED_FRAC = 0.3
"""If a share of the recorded thread's work goes, the rest may shrink by up to this fraction of that share, because its
data stays in the caches. In ten programs on processors the rest shrank by 1 to 15 %, 8 % in the median, after half of
the step went. In two it shrank by 25 and 28 % after fetching samples one by one, four fifths of the step, went."""

MUTE_WAIT_FRAC = 0.20
"""Above this share of waiting for data, rules on the device and on the update are silent (XProf)."""

HIGH_GAIN_FRAC = 0.20
"""A sure gain of this share of the step is of high severity."""

LOW_GAIN_FRAC = 0.10
"""A gain below this share of the step is of low severity."""

BOUND_FRAC = 0.10
"""Something other than computing bounds the step from this share."""

NAMED_WAIT_FRAC = 0.15
"""A function that the device waits for is named from this share of the waits."""

SURE_FRAC = 0.90
"""A verdict is sure when at least this share of the stretches of the run agree with it."""

UNSEEN_DEVICE = 0.6
"""Factor on the confidence in a verdict on computing if device times were not recorded."""

LIKELY_FRAC = 0.60
"""Share of agreeing stretches below which a verdict is unsure."""

MUCH_OF_BEST_FRAC = 0.5
"""A slow rank comes before communication if mending it gains this share of the best change's gain."""

LITTLE_FRAC = 0.05
"""Preparing the batch adds almost nothing to the time outside of training below this share of that time."""

BETWEEN_FRAC = 0.25
"""Share of the whole idle time below which the idle time between the first and the last kernel is not representative.
"""

LESS_FRAC = 0.9
"""Work counts as less if it takes less than this share of its former time."""

OTHER_FRAC = 0.03
"""Share of the step below which a change of a phase does not affect the judgement."""

ALIKE_RATIO = 1.03
"""Simulated steps up to this ratio count as equally short."""
