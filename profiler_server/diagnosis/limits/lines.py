"""Limits for lines of the user's code that are worth a look."""

from __future__ import annotations

HOT_FRAC = 0.10
"""A function or line is worth a look if it surely takes this share of the step."""

PATTERN_FRAC = 0.05
"""With a pattern, this share is enough."""

MOST_HOT = 2
"""Most lines that are listed: a list of every part of a healthy step says nothing."""

MODEL_WEIGHT = 0.5
"""The forward of a module counts half in the order of lines without a pattern."""

LEAST_LINE_SAMPLES = 30
"""Samples of the training thread below which no line is listed. Above, a line's own interval says whether it is worth a look."""

BUSY_FRAC = 0.7
"""A device that is busy for this share of the time sets the pace."""

MOSTLY_FRAC = 0.5
"""A line mostly does something if this share of its time goes there."""

MANY_CALLS = 24
"""An operator that one line calls this often in a step is in a loop."""

SMALL_NS = 60_000.0
"""An operator this short costs mostly its call: some 5 to 20 µs on a host."""

FILLED_TIMES = 10.0
"""An operator that takes a part of a tensor, and whose backward takes so many times as long, fills a gradient of the whole
tensor: most operators take two to three times as long there."""

PART_CALLS = 8
"""A loop takes at least so many parts in a step. A lookup of many rows at once has one large gradient by right."""

AGAIN_FRAC = 0.2
"""A forward that spends this share of its time in backward is run again there."""

NO_GRADIENT_FRAC = 0.05
"""A line whose backward takes less than this share of its own time has none: an operator at the border of two lines may
be given to the wrong one."""

PYTHON_FRAC = 0.25
"""With at most this share of its time in operators, a line is Python."""

GROWTH_FRAC, GROWTH_TIMES = 0.05, 1.5
"""A line grows if in the last third of the run it takes so many times as long as in the first (on a busy host beside what
the rest of the step grows), and this share of the step more."""

STEADY_GROWTH_FRAC = 0.2
"""Each third of the run adds at least this share of the growth; else something changed at one time."""

ALONE_THREADS = 1.25
"""A line runs on one thread if on average no more threads of the process run than this."""

LARGE_NS = 200_000.0
"""An operator this long could be divided among threads: waking them takes some 10 to 50 µs."""

FREE_CORES = 0.75
"""A line on one thread could use others if this many processors are free."""

SAMPLED_TIMES = 1.15
"""Running threads are believed if the process uses no more than so many times as many processors as samples show."""
