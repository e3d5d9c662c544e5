"""Which changes are said and in which order, and what a run is bound by."""

from __future__ import annotations

LEAST_CHECK_FRAC, MOST_CHECK_FRAC = 0.75, 1.33
"""The model of the loader is trusted only if, for the run as it is, it gives a step between these shares of the measured
one; otherwise no change to loading is predicted."""

CLOSE_FRAC = 0.10
"""Changes whose gain is within this share of the best are ordered by effort."""

LEAST_LOW_FRAC = 0.10
"""The lower end of a range is at least this share of the predicted step: no change makes a step free."""

EASED_FRAC = 0.3
"""Where a share of the training thread's work goes, the rest may take up to so much of that share less: its data stays in
the caches. In ten programs on processors the rest took 1 to 15 % less, 8 % in the median, where half of the step went; 25
and 28 % less in two where fetching samples one by one, four fifths of the step, went."""

MUTE_WAIT_FRAC = 0.20
"""Above this share of waiting for data, rules on the device and on the update are silent: the loop starves (XProf)."""

HIGH_GAIN_FRAC = 0.20
"""A sure gain of this share of the step is of high severity."""

LOW_GAIN_FRAC = 0.10
"""A gain below this share of the step is of low severity."""

BOUND_FRAC = 0.10
"""Something other than computing bounds the step from this share on."""

SURE_FRAC = 0.90
"""A verdict is sure when at least this share of the stretches of the run agree with it."""

UNSEEN_DEVICE = 0.6
"""What is left of the confidence in a verdict on computing when the times of the device were not recorded."""

LIKELY_FRAC = 0.60
"""Below this share of agreeing stretches it is unsure."""

MUCH_OF_BEST_FRAC = 0.5
"""A slow rank comes before communication in general where mending it gains so much of what the best change does."""

LITTLE_FRAC = 0.05
"""Preparing the batch adds next to nothing to the time outside of training below this share of it."""

BETWEEN_FRAC = 0.25
"""Less idle time between the first and the last kernel than this part of the whole says nothing of the whole."""

LESS_FRAC = 0.9
"""Work counts as less where it takes less than this share of what it took."""

OTHER_FRAC = 0.03
"""A change of a phase that is less of the step bends no judgement."""

ALIKE_RATIO = 1.03
"""Simulated steps that are longer by no more are as short."""
