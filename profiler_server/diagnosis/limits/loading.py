"""Limits for how input-bound a step is, for queues, and for the rules on loading."""

from __future__ import annotations

MODERATE_WAIT_FRAC = 0.05
"""If a step spends at least this share in waiting for data, it is moderately input-bound (XProf)."""

HIGH_WAIT_FRAC = 0.20
"""If a step spends at least this share in waiting for data, it is highly input-bound (XProf)."""

SENDING_WAIT_FRAC = 0.5
"""Sending is blamed for a wait for finished batches if it takes this share of the wait: unpickling costs as much as
pickling."""

EMPTY_QUEUE_FRAC = 0.30
"""A queue runs dry if it lacks the next batch, or is empty, in more than this share of the requests."""

FULL_QUEUE_FRAC = 0.70
"""A queue counts as full from this mean depth, as a share of its capacity."""

LATE_WAIT_FRAC = 0.50
"""Few missing batches matter too if their steps hold more than this share of all waiting. The first steps of epochs
matter on the same condition."""

TIMED_WAIT_FRAC = 0.60
"""Without workers a stage is the cause if all stages take at least this share of the wait for a batch."""

UNMADE_WAIT_FRAC = 0.50
"""The workers are the limit if this share of all waiting passed before they finished the batch."""

CROWDED_FRAC = 0.10
"""Workers that keep up take processors from the step if the recorded thread queues for one for this share of its time.
The same share bounds a step. On a host with a spare processor it was below 5 %."""

HANDOVER_BUSY_FRAC = 0.50
"""Workers that work for this share of their time may be too busy to send batches that are ready, or too slow. Workers
that work less are not the limit."""

BUSY_WORKERS_FRAC = 0.95
"""Workers that work for this share of their time are the limit, however full the queue looks."""

OWN_BUSY_FRAC = 0.50
"""A stage of the user's own that works less than this share of its time is not the limit."""

OWN_WAIT_FRAC = 0.20
"""A stage of the user's own is held up by a neighbour if waiting for the neighbour takes this share of the stage's
time."""

SEND_NS = 300_000.0
"""Measured cost of moving a batch of a few MB from a worker. For work below three times this, workers are not
worthwhile."""

WORKERS_BUSY_FRAC = 0.8
"""More workers help if the present ones are busy for more than this share of their time."""

PREFETCH_LOAD_FRAC = 0.95
"""Workers with a smaller load than this are fast enough on average: a deeper queue is needed instead."""

TENSORS_SEND_NS = 1_000_000
"""Longest time to send a batch of tensors of any size, because tensors are in shared memory (0.3 to 1.3 ms in runs of
25 programs, with 0.02 to 46 MB)."""

LARGE_BATCH_BYTES = 1 << 20
"""The way that processes share a batch matters from this size; below it, other ways only add work."""

OPENING_FRAC = 0.2
"""The number of files matters if opening them takes this share of reading."""

SMALL_FILE_BYTES = 1 << 20
"""Reading a file of this size or more takes longer than opening it."""

MOST_CACHED_BYTES = 256 << 30
"""Keeping decoded samples is not suggested if they need more memory than this."""

CACHED_BYTES_PER_S = 1e9
"""Assumed speed at which a worker reads a file from the page cache, copying included: a cautious figure."""

COLD_RATIO = 1.5
"""A cold cache is reported if reading in the first epoch takes this many times as long as in later epochs."""

SAMPLER_FRAC = 0.05
"""A slow sampler is reported if choosing samples takes this share of the step."""

INDEXED_LEFT_FRAC = 0.06
"""Share of fetching one by one that remains with one index operation per batch; 0.04 to 0.09 in five measured programs.
"""

CACHES_FRAC = 0.15
"""Share of the computing that is also saved if the recorded thread stops fetching thousands of small tensors or
choosing samples one by one, which fills its caches. 6, 25 and 28 % in three measured programs, 5 and 16 % in two with
a slow sampler."""

FREEING_NS = 500_000.0
"""Freeing that takes less than this is ignored."""

LOOKUP_FRAC = 0.05
"""Share of reading that remains besides moving the bytes."""

READER_NEED = 0.5
"""A reader of the user's own computes if it needs a processor for at least this share of its time. A Python thread
would then hold the training up."""
