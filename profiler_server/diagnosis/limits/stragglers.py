"""Limits for which rank waits for which in a job. A share (`_FRAC`) is of the mean step unless its sentence names
something else."""

from __future__ import annotations

CLEAR_FRAC = 0.8
"""Share from which a single cause is named: a phase of the excess, or a rank of the long waits, of the steps around a
change, or of the garbage pauses (TraceML names a cause from here)."""

LEAST_MEETINGS = 10
"""Steps or collectives below which nothing is concluded: no late rank, turns, handover, unlike inputs, or another job.
"""

EXPLAINED_FRAC = 0.7
"""If collectives hold the ranks for a smaller share of their communication, the ranks wait elsewhere."""

LEAST_RANKS = 4
"""Ranks below which the others have no deviation; the difference must then be certain step by step."""

OUTLYING_DEVIATIONS = 5.0
"""Robust deviations from which a rank differs from the others."""

LEAST_DEVIATION_FRAC = 0.005
"""Least deviation assumed, as a share of the step, because nearly equal ranks deviate by nothing."""

SURE_ERRORS = 3.0
"""Standard errors from which a difference is not chance."""

LONG_DEVIATIONS = 10.0
"""A wait is long if it exceeds the usual wait by this many robust deviations."""

LEAST_LONG = 5
"""Long waits below which no rank is blamed for them."""

ROTATING_ENTROPY = 0.8
"""The ranks take turns from this entropy of the last rank, which is 1 if all ranks come last equally often."""

LARGE_WAIT_FRAC = 0.1
"""Waits of this share of the step are not chance. A rank that is this far behind may hand over to another."""

OUTLYING_WAIT = 1.5
"""With very many ranks the last is late by chance alone. Turns with short waits are reported from this multiple of that
chance wait."""

MORE_THAN_WORK_FRAC = 0.2
"""One phase causes the turns if its share of the excess is this much above its share of the work. A rank without a
processor is delayed in every phase."""

LEAST_CAUSE_FRAC = 0.05
"""Share of the excess below which a phase is no cause."""

UNEVEN_CORRELATION = 0.9
"""Correlation of forward and backward from which some ranks have inputs of unlike lengths."""

LEAST_PAUSE_FRAC = 0.02
"""Share of the step below which a garbage collection is no pause."""

APART_PAUSES = 1.5
"""Ranks collect garbage at different steps if the steps with any pause are this many times the steps with a pause of
one rank."""

LEAST_GAIN_FRAC = 0.01
"""Least gain for advising a common garbage collection, and least cost for naming a slow collective."""

LISTED_LAST_FRAC = 0.7
"""Share of the listed collectives from which the rank that comes last is named."""

SEEN_BEHIND_FRAC = 0.001
"""A rank that is behind by less is not named, because its share would be shown as 0.0 %."""

STILL_NS = 10**9
"""Ranks that waited for less than this were not hung when something else ended them."""

SETTLES_S = 10.0
"""Time that the recorder of a dead process may need to write how the process ended, s."""

MOST_DISCREPANCY = 0.05
"""Largest error of a job's modelled steps against the measured steps. A model with a larger error is not used."""

WORST_PERCENT = 3
"""Percentage of ranks mended together: those that slow the job down most."""

LEAST_WEIGHED_STEPS = 5
"""Common steps below which a job is not modelled."""

LEAST_LOSS_FRAC = 0.005
"""Share of the step from which unlike ranks cost something."""

FILLING_NS = 50_000
"""Error of two clocks. A transfer that lies further before the first or after the last computation only fills its step.
"""
