"""Whether the usual step became longer for good at one step, by a rank statistic with a known chance of a false alarm.

Steps depend on the steps before them: whatever slows one slows the next. So they are first put together into blocks,
of which the median counts, and the blocks are made longer until the median of one says nothing of the next.
"""

from __future__ import annotations

import numpy as np

from collector.format.intervals import Floats, Ints
from profiler_server.analysis.rank_split import (
    MOST_VALUES,
    beats_line,
    find_chance,
    measure_dependence,
    part_ranks,
    rank_values,
)
from profiler_server.diagnosis.limits.facts import SHIFT_CHANCE
from profiler_server.diagnosis.limits.steps import LEAST_BLOCK, LEAST_BLOCKS, MOST_DEPENDENCE
from profiler_server.facts.steps import Shift


def find_shift(durations_ns: Ints) -> Shift | None:
    """Return where the steps became longer or shorter for good, None where that may be chance, or is a slope."""
    length = max(LEAST_BLOCK, -(-len(durations_ns) // MOST_VALUES))
    while len(durations_ns) // length >= LEAST_BLOCKS:
        blocks = _form_blocks(durations_ns, length)
        parted, score = part_ranks(rank_values(blocks))
        if measure_dependence(blocks, parted) <= MOST_DEPENDENCE:
            chance = find_chance(len(blocks), score)
            return _describe(durations_ns, blocks, parted, length, chance) if chance <= SHIFT_CHANCE else None
        length *= 2
    return None


def _describe(durations_ns: Ints, blocks: Floats, parted: int, length: int, chance: float) -> Shift | None:
    if not beats_line(blocks, parted):
        return None
    at = _refine(durations_ns, parted * length, length)
    before, after = float(np.median(durations_ns[:at])), float(np.median(durations_ns[at:]))
    middle, grows = (before + after) / 2, after > before
    low, high = blocks[:parted] < middle, blocks[parted:] > middle
    held = min(float((low == grows).mean()), float((high == grows).mean()))
    return Shift(at, before, after, chance, held)


def _form_blocks(durations_ns: Ints, length: int) -> Floats:
    """Return the medians of blocks of equal length; what is left over goes to the last one."""
    count = len(durations_ns) // length
    whole: Floats = np.median(durations_ns[: count * length].reshape(count, length), axis=1)
    whole[-1] = np.median(durations_ns[(count - 1) * length :])
    return whole


def _refine(durations_ns: Ints, at: int, length: int) -> int:
    """Return the step nearest to a border of blocks that parts short and long steps best."""
    first, last = max(at - length, 1), min(at + length, len(durations_ns) - 1)
    middle = (np.median(durations_ns[: at - length or at]) + np.median(durations_ns[at + length or at :])) / 2
    grows = np.median(durations_ns[at:]) > np.median(durations_ns[:at])
    is_late = (durations_ns > middle) == grows
    # Places are counted right where they are early before the border and late after it.
    gains = np.cumsum(np.where(is_late[first:last], -1, 1))
    return first + int(np.argmax(np.concatenate([[0], gains])))
