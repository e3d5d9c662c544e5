"""Limits for collectives of several ranks: which calls belong together, whether the ranks were in them together, and
which are slow."""

from __future__ import annotations

TOGETHER_NS = 1_000_000
"""Ranks that meet leave a call within this time, or within the usual duration of the call. Their clocks are then
common, or aligned."""

LEAST_CALLS = 3
"""Common collectives below which an offset has no known error, and no collective is judged slow."""

ENOUGH_CALLS = 20
"""Calls common to all ranks that are enough to compare the ranks, and to fit a drift."""

KEPT_PERCENT = 75
"""Percentage of calls kept when fitting a drift. Calls whose ends lie further from the fit ended late by chance."""

ALIGNED_FRAC = 0.1
"""Ranks of one host have separate clocks if an alignment reduces the distance of their call ends to less than this
share."""

MOST_DRIFT = 0.01
"""Largest possible drift of a machine's clock. A larger fitted drift means that the calls are not the same."""

LEAST_HELD_NS = 20_000
"""A call that the training waited for later, and for less than this, did not bring the ranks together."""

AT_ONCE_FRAC = 0.95
"""The training waited for a call at once if it stood still for at least this share of the call."""

APART_FRAC, APART_NS = 0.05, 10_000_000
"""Ranks of one job take equally long from their first to their last meeting, within this share of it or this many ns.
Clock drift and different leaving times explain smaller differences."""

MISSED_FRAC = 0.25
"""Ranks of one job are in a call at the same moment in all but this share of their calls."""

FAR_RATIO = 10.0
"""Two groups of ranks do not leave together if they are this many times further apart than the ranks within each group.
"""

SLOW_RATIO = 2.0
"""A collective is slow if it takes this many times its expected time at the speed of the others."""

LEAST_OTHERS = 2
"""Least number of other calls of the group to compare with. Of two calls alone, either may be the unusual one."""

SURE_RESIDUALS = 4.0
"""A slow collective must exceed the expected time by this many times the error of the hosts' clocks."""

LEAST_MATCHED_FRAC = 0.9
"""Share of matched calls below which the waiting time is not shown: a late rank waits briefly, and its call is not
listed."""
