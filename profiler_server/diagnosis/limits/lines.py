"""Limits for lines of the user's code that are worth a look."""

from __future__ import annotations

HOT_FRAC = 0.10
"""A function or line is worth a look if it surely takes this share of the step."""

PATTERN_FRAC = 0.05
"""With a pattern, this share is enough."""

MOST_HOT = 2
"""Most lines that are listed: a list of every part of a healthy step says nothing."""

MODEL_WEIGHT, KNOWN_WEIGHT = 0.5, 2.0
"""The forward of a module has this weight in the order of lines without a pattern, because it is the purpose of a
training. A line with a pattern, or a setting to change, has the other weight."""


def weigh_line(function: str, is_known: bool) -> float:
    """Return the factor for the share of a line in the order of lines. `is_known`: it has a pattern."""
    return KNOWN_WEIGHT if is_known else MODEL_WEIGHT if function.endswith(".forward") else 1.0


LEAST_LINE_SAMPLES = 30
"""With fewer samples of the recorded thread, no line is listed. With more, the line's own interval decides whether it
is worth a look."""

BUSY_FRAC = 0.7
"""A device that is busy for at least this share of the time sets the pace."""

MOSTLY_FRAC = 0.5
"""A line mostly does one thing if this share of its time goes to it."""

MANY_CALLS = 24
"""An operator that one line calls at least this often in a step is in a loop."""

SMALL_NS = 60_000.0
"""The cost of a shorter operator is mostly the call itself: some 5 to 20 µs on a host."""

FILLED_TIMES = 10.0
"""If the backward of an operator that takes a part of a tensor lasts at least this many times as long as the operator,
it fills a gradient of the whole tensor. For most operators this ratio is two to three."""

PART_CALLS = 8
"""The least number of such parts that a loop takes in a step. A lookup of many rows at once rightly has one large
gradient."""

AGAIN_FRAC = 0.2
"""A forward that spends at least this share of its time inside the backward is computed there a second time."""

NO_GRADIENT_FRAC = 0.05
"""A line counts as a line without a backward if its backward takes less than this share of its own time. It is not
zero, because an operator at the border of two lines may be assigned to the wrong line."""

PYTHON_FRAC = 0.25
"""A line computes in Python if at most this share of its time is in operators."""

GROWTH_FRAC, GROWTH_TIMES = 0.05, 1.5
"""A line grows if it takes `GROWTH_TIMES` as long in the last third of the run as in the first, and the difference is at
least `GROWTH_FRAC` of the step. If the rest of the step grows too, as on a busy host, its factor multiplies the former."""

STEADY_GROWTH_FRAC = 0.2
"""Each third of the run adds at least this share of the growth. Otherwise something changed at one moment."""

ALONE_THREADS = 1.25
"""A line runs on one thread if on average at most this many threads of the process run."""

LARGE_NS = 200_000.0
"""A longer operator could be divided among threads: waking threads takes some 10 to 50 µs."""

FREE_CORES = 0.75
"""A line on one thread could use others if this many processors are free."""

SAMPLED_TIMES = 1.15
"""The sampled number of running threads is trusted if the process uses at most this many times as many processors."""
