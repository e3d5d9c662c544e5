"""Which functions are named from stacks that were sampled."""

from __future__ import annotations

LEAST_SAMPLES = 30
"""Of fewer samples of a stage nothing is named, of a phase only what is surely most of it."""

SURE_NAME_FRAC = 0.6
"""That is what takes at least so much of it by the low end of its share: six samples of six do. A stage makes few and
long batches, so its samples are not as independent."""

LOOP_FRAC = 0.6
"""A function that is on the stack for so much of every phase is part of the loop."""

ALWAYS_FRAC = 0.9
"""A function that is on the stack for so much of all samples is always there."""

LEAST_OF_PHASE = 3
"""A phase with fewer samples does not tell the loop; such phases do so together."""

NEARLY_ALL_FRAC = 0.8
"""Work of the user is named from inside of the function that so much of it runs in."""
