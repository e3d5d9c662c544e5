"""Limits of facts, and the least gain that is worth a change. All rules use them."""

from __future__ import annotations

INPUT_WAIT_FRAC = 0.08
"""Rules on loading apply above this share of waiting. XProf's limit is 5 %; this is higher, so that noise does not
reach it."""

EXPLAINED_FRAC = 0.05
"""A phase with this share of the step is accounted for, and a rest of it with this share that nothing explains is said.
"""

STARVED_WAIT_FRAC = 0.10
"""From this share of waiting the slow stage gets a suggestion even at lower confidence. The same share bounds a step.
"""

LATE_FRAC = 0.15
"""Batches are late if the next batch was missing in more than this share of the requests."""

QUEUED_FRAC = 0.25
"""The recorded thread lacks a processor if it queues for one for this share of its time."""

COMPUTING_FRAC = 0.20
"""Workers mostly wait, usually for storage, if they need a processor for less than this share of their work."""

COMPUTED_READ_FRAC = 0.50
"""Reading computes (Python, decoding) if opening files and moving their bytes explain less than this share of it."""

CAPPED_NEED = 0.5
"""Workers compute rather than wait if they need a processor for more than this share of their work."""

CAPPED_DEMAND_FRAC = 0.9
"""From this share of the usable cores in use there is no processor for more workers."""

NOISY_FRAC = 0.25
"""Other programs disturb a run if they take more than this share of the cores."""

BUSIER_FRAC = 0.10
"""The host got busier during a run if other programs took this share of the cores more at its end, or if work waited
for processors this share of its time longer."""

IN_MEMORY_NS = 30_000.0
"""A sample that takes less than this comes from memory, so worker processes are not worthwhile."""

UNEVEN_SPREAD = 0.5
"""Batches are uneven if the spread of their times exceeds this share of their mean, and `UNEVEN_LOAD_FRAC` is met."""

UNEVEN_LOAD_FRAC = 0.7
"""Batches are uneven only if batches of the median time would load the workers less than this."""

COPY_BYTES_PER_NS = 4.0
"""Pickled data must first be copied into a tensor; one core copies at least this many bytes per ns."""

STORAGE_YIELD_FRAC = 0.25
"""The storage is the limit if more workers raise the bytes per second by less than this share of the expected increase.
"""

DISPATCH_FRAC = 0.15
"""The host launches, rather than runs Python, if it spends this share of the step in operators."""

MIN_ACCUMULATED = 1.9
"""Backwards per update from which gradients are accumulated."""

LEAST_OF_DELAY, MOST_OF_DELAY = 0.6, 1.25
"""Share of a slow rank's measured delay that mending it saves, at least and at most. Less than all, because a mended
rank varies and is sometimes last. More than all, because a rank that overloaded its host also slowed other ranks there.
"""

MIN_STEPS = 20
"""Least number of steady steps for predicting a step time."""

MIN_GAIN_FRAC = 0.05
"""Share of the step that a change must gain after all doubt, beside `MIN_GAIN_NS`."""

MIN_GAIN_NS = 500_000.0
"""Least gain of a change in ns, whatever the step."""

CONTENTION_WEIGHT = 0.25
"""Increase of the least gain per share of the cores that other programs use."""

LARGE_PART_FRAC = 0.20
"""A change of uncertain gain is still suggested if it shortens something that takes at least this share of the step, and a
setting that governs this share is worth a look."""

MOST_ERROR_FRAC = 0.03
"""A replay of the unchanged window predicts nothing if it differs more than this from the measured time."""

DOMINANT_FRAC = 0.5
"""A function dominates a phase or stage from this share of it."""

SHIFT_CHANCE = 0.001
"""Chance that a run without a change is reported to have one, if blocks do not depend on each other."""

NAMED_FRAC = 0.15
"""A function is named beside another one from this share of a phase or stage."""

CERTAIN_LOSS = 0.5
"""Factor on the least gain that a function's share promises. A call can seldom be left out altogether."""

MANY_BUCKETS, SMALL_BUCKET_BYTES = 8, 1 << 20
"""Gradients go out in many small pieces from this many buckets, if each holds fewer bytes than this."""

LEAST_SPLIT_BYTES = 4 << 20
"""A single bucket for all gradients is worth splitting from this size."""

SYNCED_FRAC = 0.95
"""Every backward counts as reducing the gradients if at least this share does."""

SLOW_RANK_FRAC = 0.03
"""A rank that is late by this share of the step is called slow."""

BEHIND_FRAC = 0.03
"""Waiting that costs a smaller share of the step gets no cause. Ranks whose computing varies by less have no unlike
inputs."""

MOST_FRAC = 0.5
"""Half: the limit for "most". Used for steps covered by collectives, steps in which a rank is last, delay explained by
data, checkpoints or long waits, waiting in a few waits, calls and steps against the usual number, and messages of other
sizes."""

FEW_ROWS_FRAC = 0.10
"""Sparse gradients are usually better if lookups read less than this share of the rows on average."""

SURE_ERRORS = 3.0
"""A line grows if its growth is at least this many standard errors: one of 700 lines that do not grow has that."""
