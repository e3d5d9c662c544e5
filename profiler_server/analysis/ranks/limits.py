"""The thresholds that decide who waits for whom. A share (`_FRAC`) is of the mean step unless its sentence says otherwise.

Those that rules quote stand beside the verdicts, in facts/job.py.
"""

from __future__ import annotations

# --- which meetings tell it --------------------------------------------------------------------------------------------

LEAST_STEPS = 10
"""Collectives of fewer steps give way to the steps; fewer steps tell neither turns nor a handover."""

COVERED_FRAC = 0.5
"""Collectives of a smaller share of the steps give way to the steps."""

EXPLAINED_FRAC = 0.7
"""Collectives in which the ranks are held for a smaller share of their communication are not where they wait."""

# --- who is slow -------------------------------------------------------------------------------------------------------

LEAST_RANKS = 4
"""Fewer ranks have no deviation of the others; there the difference must be sure step by step."""

OUTLYING_DEVIATIONS = 5.0
"""From so many robust deviations of the others on, a rank is no longer one of them."""

LEAST_DEVIATION_FRAC = 0.005
"""Ranks that are alike to the microsecond deviate by nothing: their deviation counts as this share of the step at least."""

SURE_ERRORS = 3.0
"""Standard errors from which a difference is no longer put down to chance."""

LAST_FRAC = 0.5
"""The rank that comes last in so many of the steps holds the others up, however much it varies."""

# --- delays that come now and then -------------------------------------------------------------------------------------

LONG_DEVIATIONS = 10.0
"""A wait is long if it lies so many robust deviations over the usual one."""

LEAST_LONG = 5
"""Fewer long waits do not tell whose they are: they are single ones."""

MOST_OF_DELAY_FRAC = 0.5
"""Long waits name a rank if they are this part of what it holds the others up."""

LAST_OF_LONG_FRAC = 0.8
"""Long waits name a rank that was the last in so many of them."""

MOST_OF_WAITING_FRAC = 0.5
"""Single waits are told by themselves if they are this part of all waiting."""

# --- turns, and one rank after another ---------------------------------------------------------------------------------

ROTATING_ENTROPY = 0.8
"""Of who comes last, 1 for all ranks equally often: from here the ranks take turns."""

LARGE_WAIT_FRAC = 0.1
"""Waits of this share of the step are no chance, and a rank that is behind by it may hand over to another."""

OUTLYING_WAIT = 1.5
"""The last of very many ranks is late by chance alone: turns that wait less are named from so many times that wait on."""

ONE_PHASE_FRAC = 0.8
"""A phase that is so much of what the last rank does longer makes the turns."""

MORE_THAN_WORK_FRAC = 0.2
"""It is no chance if it is so much more of that than of the work: a rank without a processor is held up anywhere."""

LAST_BEFORE_AND_AFTER_FRAC = 0.8
"""The one rank is the last in so many of the steps before a change, and the other in so many of those behind it; or a rank
is late in so many on one side, and in time in so many on the other."""

# --- why ---------------------------------------------------------------------------------------------------------------

BEHIND_PHASES_FRAC = 0.8
"""What lies behind phases is named as the cause, and not the phases, from this share of what is longer."""

LEAST_CAUSE_FRAC = 0.05
"""A smaller share of what is longer is no cause."""

SAVING_FRAC = 0.5
"""Checkpoints are the cause if they are this part of what lies outside of training."""

UNEVEN_CORRELATION = 0.9
"""Forward and backward that grow and shrink together, on some ranks and not on others, have inputs of unlike lengths."""

UNEVEN_FRAC = 0.03
"""Ranks whose computing varies by less of the step than this are not said to have unlike inputs."""

LEAST_UNEVEN_STEPS = 10
"""Fewer steps do not tell whether forward and backward vary together."""

LEAST_PAUSE_FRAC = 0.02
"""A collection of garbage that is shorter is no pause."""

APART_PAUSES = 1.5
"""Ranks collect garbage apart where so many times more steps have a pause than one rank has."""

ONE_RANK_FRAC = 0.8
"""A rank to which so many of the pauses come gains the job nothing by collecting when others do."""

LEAST_GAIN_FRAC = 0.01
"""Collecting garbage together is not advised for less."""
