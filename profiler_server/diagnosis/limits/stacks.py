"""Limits of sampled stacks: how many samples and which share of the time a function needs to be named."""

from __future__ import annotations

LEAST_SAMPLES = 30
"""With fewer samples, no function of a stage is named, and in a phase only a function that surely takes most of it."""

SURE_NAME_FRAC = 0.6
"""A function surely takes most of a phase if the low end of its share is at least this: six samples of six are enough.
A stage makes few, long batches, so its samples are less independent."""

LOOP_FRAC = 0.6
"""A function on the stack for this share of every phase belongs to the loop."""

ALWAYS_FRAC = 0.9
"""A function on the stack for this share of all samples is always there."""

LEAST_OF_PHASE = 3
"""Phases with fewer samples are combined to find the loop."""

HOTSPOT_FRAC = 0.05
"""A function or line of the user's is worth a name from this share of the mean step; less belongs to its caller."""

LEAST_DENSE = 20
"""Samples of detailed windows below which operators are not joined with lines."""

JOINED_NS = 5_000_000
"""An operator belongs to the nearest sample of its window if that is at most this far away."""

NEIGHBOURS_FRAC = 0.6
"""Operators with the same neighbours belong to one line if it has more than this share of the samples in them."""

UNUSED_STEPS = 3
"""Detailed steps in which unused gradients are looked for: `collector.signals.gradients.MOST_STEPS`."""

UNUSED_PART = 0.5
"""The unused share of a backward node if some of its gradients are unused: the gradients of a layer's weights take
about as long as those of its input."""
