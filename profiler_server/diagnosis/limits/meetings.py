"""Collectives of several ranks: which calls are one, whether the ranks were in them together, and which are slow."""

from __future__ import annotations

TOGETHER_NS = 1_000_000
"""Ranks that meet leave together within this, or within what such a call takes: their clocks are then one, or aligned."""

LEAST_CALLS = 3
"""Fewer common collectives tell an offset, but not how good it is, nor whether one of them is slow."""

ENOUGH_CALLS = 20
"""So many calls that all ranks have are enough to compare them by, and to fit a drift to."""

KEPT_PERCENT = 75
"""Calls of which the ends lie further from a fitted drift than those of so many ended late by chance."""

ALIGNED_FRAC = 0.1
"""Ranks of one host have clocks of their own where an alignment leaves less than this of how far apart their calls end."""

MOST_DRIFT = 0.01
"""No clock of a machine is off by so much: what fits such a drift are not the same calls."""

LEAST_HELD_NS = 20_000
"""A call that the training did not wait for at once, and then for less than this, brought no ranks together."""

AT_ONCE_FRAC = 0.95
"""The training waited for a call at once if it stood still for so much of it."""

APART_FRAC, APART_NS = 0.05, 10_000_000
"""Ranks that meet need as long from one meeting to another, but for clocks that run apart and how they leave them."""

MISSED_FRAC = 0.25
"""Ranks of one job are in a call at the same moment in all but this share of their calls."""

FAR_RATIO = 10.0
"""So many times further apart than the ranks of either part leave, they do not leave together."""

SLOW_RATIO = 2.0
"""A collective is slow that takes so many times what it takes at most at the speed of the others."""

LEAST_OTHERS = 2
"""Others of the group that it is compared with; of two alone, either may be the unusual one."""

SURE_RESIDUALS = 4.0
"""What is slow must be so by this many times what clocks of several hosts are known to."""

LEAST_MATCHED_FRAC = 0.9
"""Of calls that fewer have a partner, what is waiting is not known: that of the late rank is short, and not listed."""
