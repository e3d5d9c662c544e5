"""What facts decide by, and what a change must gain: every rule stands on these."""

from __future__ import annotations

INPUT_WAIT_FRAC = 0.08
"""A rule about loading speaks above this share of waiting: over XProf's 5 %, so that noise alone does not reach it."""

STARVED_WAIT_FRAC = 0.10
"""From here the slow stage gets a suggestion, even one of lower confidence: the share that bounds a step."""

LATE_FRAC = 0.15
"""Batches count as late when the next one was missing in more than this share of the requests."""

QUEUED_FRAC = 0.25
"""The training thread lacks a processor when it queues for one for this share of its time."""

COMPUTING_FRAC = 0.20
"""Workers that need a processor for less than this share of their work wait, for storage mostly."""

COMPUTED_READ_FRAC = 0.50
"""Reading computes, as Python and decoding do, when opening files and moving their bytes explain less than this share of it."""

CAPPED_NEED = 0.5
"""Workers compute, rather than wait, when they need a processor for more than this share of their work."""

CAPPED_DEMAND_FRAC = 0.9
"""From this share of the usable cores in use no processor is left for more workers."""

NOISY_FRAC = 0.25
"""Other programs disturb a run when they take more than this share of the cores."""

BUSIER_FRAC = 0.10
"""The host got busier during a run when others took this share of the cores more at its end, or work waited for
processors this share of its time longer."""

IN_MEMORY_NS = 30_000.0
"""A sample that takes less than this comes from memory: worker processes do not pay."""

UNEVEN_SPREAD = 0.5
"""Batches are uneven when their times vary by more than this share of their mean."""

UNEVEN_LOAD_FRAC = 0.7
"""And the median batch would load the workers less than this."""

COPY_BYTES_PER_NS = 4.0
"""What is pickled today must first be copied into a tensor; one core copies at least this fast."""

STORAGE_YIELD_FRAC = 0.25
"""The storage is the limit when more workers add less than this share of what they should to the bytes per second."""

DISPATCH_FRAC = 0.15
"""The host launches, rather than runs Python, when it spends this share of the step in operators."""

MIN_ACCUMULATED = 1.9
"""Backwards per update from which gradients are accumulated."""

LEAST_OF_DELAY, MOST_OF_DELAY = 0.6, 1.25
"""How much of the measured delay of a slow rank is saved by mending it. Less than all: a mended rank varies like the
others and is sometimes the last. Or more: one that overloaded its host slowed down the other ranks on it, too."""

MIN_STEPS = 20
"""Steady steps from which a step time is predicted."""

MIN_GAIN_FRAC = 0.05
"""Share of the step that a change must gain after all doubt."""

MIN_GAIN_NS = 500_000.0
"""And this much time, whatever the step."""

CONTENTION_WEIGHT = 0.25
"""The share that must be gained grows by this, times the share of the cores that other programs use."""

LARGE_PART_FRAC = 0.20
"""A change of uncertain gain is suggested all the same when what it shortens takes at least this share of the step."""

MOST_ERROR_FRAC = 0.03
"""A replay of the unchanged window that is further from its measured time predicts nothing."""

DOMINANT_FRAC = 0.5
"""A function dominates a phase or a stage from this share of it on."""

SHIFT_CHANCE = 0.001
"""Of so many runs without a change, one is said to have one, if blocks do not depend on each other."""

NAMED_FRAC = 0.15
"""A function is named beside another one from this share of a phase or stage on."""

CERTAIN_LOSS, CERTAIN_GAIN = 0.5, 1.05
"""Of the gain that the share of a function promises: a call can seldom be left out altogether, and costs what it costs."""

MANY_BUCKETS, SMALL_BUCKET_BYTES = 8, 1 << 20
"""Gradients go out in many small pieces from so many buckets on that hold less than this each."""

LEAST_SPLIT_BYTES = 4 << 20
"""One bucket for all gradients is worth splitting from this size on."""

SYNCED_FRAC = 0.95
"""Every backward reduces the gradients, if this share of them does."""

BEHIND_FRAC = 0.03
"""A rank that is late by a smaller share of the step is not named, nor is a cause that costs less; ranks whose computing
varies by less have no unlike inputs."""

MOST_FRAC = 0.5
"""Most of something: steps that are covered by collectives, steps in which a rank is last, what a rank is late by that its
data, its checkpoints or its long waits explain, waiting that a few waits make up, calls and steps that a rank has
of what is usual, messages of other sizes."""
