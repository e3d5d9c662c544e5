"""Who waits for whom in a job. A share (`_FRAC`) is of the mean step unless its sentence says otherwise."""

from __future__ import annotations

CLEAR_FRAC = 0.8
"""So much of something that it alone is named: a phase of what is longer, a rank of the long waits or of the steps before
and behind a change, and of the pauses for garbage (TraceML names a cause from here on)."""

LEAST_MEETINGS = 10
"""Fewer steps or collectives tell neither who is late, nor turns, a handover, unlike inputs, or another job."""

EXPLAINED_FRAC = 0.7
"""Collectives in which the ranks are held for a smaller share of their communication are not where they wait."""

LEAST_RANKS = 4
"""Fewer ranks have no deviation of the others; there the difference must be sure step by step."""

OUTLYING_DEVIATIONS = 5.0
"""From so many robust deviations of the others on, a rank is no longer one of them."""

LEAST_DEVIATION_FRAC = 0.005
"""Ranks that are alike to the microsecond deviate by nothing: their deviation counts as this share of the step at least."""

SURE_ERRORS = 3.0
"""Standard errors from which a difference is no longer put down to chance."""

LONG_DEVIATIONS = 10.0
"""A wait is long if it lies so many robust deviations over the usual one."""

LEAST_LONG = 5
"""Fewer long waits do not tell whose they are: they are single ones."""

ROTATING_ENTROPY = 0.8
"""Of who comes last, 1 for all ranks equally often: from here the ranks take turns."""

LARGE_WAIT_FRAC = 0.1
"""Waits of this share of the step are no chance, and a rank that is behind by it may hand over to another."""

OUTLYING_WAIT = 1.5
"""The last of very many ranks is late by chance alone: turns that wait less are named from so many times that wait on."""

MORE_THAN_WORK_FRAC = 0.2
"""One phase makes the turns if it is so much more of what is longer than of the work: a rank without a processor is held
up anywhere."""

LEAST_CAUSE_FRAC = 0.05
"""A smaller share of what is longer is no cause."""

UNEVEN_CORRELATION = 0.9
"""Forward and backward that grow and shrink together, on some ranks and not on others, have inputs of unlike lengths."""

LEAST_PAUSE_FRAC = 0.02
"""A collection of garbage that is shorter is no pause."""

APART_PAUSES = 1.5
"""Ranks collect garbage apart where so many times more steps have a pause than one rank has."""

LEAST_GAIN_FRAC = 0.01
"""Collecting garbage together is not advised for less, and a slow collective that costs less is not named."""

LISTED_LAST_FRAC = 0.7
"""From this share of the listed collectives on, the rank that comes last is named."""

SEEN_BEHIND_FRAC = 0.001
"""A rank that is behind by less is not named: its share would read 0.0 %."""

STILL_NS = 10**9
"""Ranks that waited for less were not hung when something else ended them."""

SETTLES_S = 10.0
"""How long the recorder of a process that is gone may take to write what it knows of the end."""

MOST_DISCREPANCY = 0.05
"""A model of a job whose steps differ more from the measured ones says nothing about them."""

WORST_PERCENT = 3
"""The ranks that slow a job down most, which are mended together."""

LEAST_WEIGHED_STEPS = 5
"""Fewer steps in common are no model of a job."""

LEAST_LOSS_FRAC = 0.005
"""Ranks that are not alike cost the step something from this share of it on."""

FILLING_NS = 50_000
"""Two clocks agree as well as that: a transfer that lies further before the first or behind the last computation only fills
its step."""
