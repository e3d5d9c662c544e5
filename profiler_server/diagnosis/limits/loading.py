"""How input-bound a step is, what queues say, and the rules on loading."""

from __future__ import annotations

MODERATE_WAIT_FRAC = 0.05
"""From this share of waiting for data a step is moderately input-bound (XProf)."""

HIGH_WAIT_FRAC = 0.20
"""From this share of waiting for data a step is highly input-bound (XProf)."""

SENDING_WAIT_FRAC = 0.5
"""Sending is blamed for a wait for finished batches if it takes this part of it: unpickling costs as much as pickling."""

EMPTY_QUEUE_FRAC = 0.30
"""A queue runs dry when it lacks the next batch, or is empty, in more than this share of the requests."""

FULL_QUEUE_FRAC = 0.70
"""A queue counts as full from this mean depth on, as a share of its capacity."""

LATE_WAIT_FRAC = 0.50
"""Few missing batches matter too, when the steps that lacked theirs have more than this share of all waiting; so do the
first steps of epochs, when they have more than this share of it."""

TIMED_WAIT_FRAC = 0.60
"""Without workers a stage is the cause when the stages make up at least this share of the wait for a batch."""

UNMADE_WAIT_FRAC = 0.50
"""The workers are the limit when this share of all waiting passed before they had finished the batch."""

CROWDED_FRAC = 0.10
"""Workers that keep up take processors from the step when the training thread queues for one for this share of its time:
the share that bounds a step. On a host with a processor to spare it was below 5 %."""

HANDOVER_BUSY_FRAC = 0.50
"""Workers that work for this share of their time may be too busy to hand over batches that are ready, or too slow;
those that work less have time to spare, and are not the limit."""

BUSY_WORKERS_FRAC = 0.95
"""Workers that work for this share of their time are the limit, however full the queue looks."""

OWN_BUSY_FRAC = 0.50
"""A stage of the user's own that works less than this share of its time is not what the others wait for."""

OWN_WAIT_FRAC = 0.20
"""A stage of the user's own is held up by a neighbour when it waits this share of its time for it."""

SEND_NS = 300_000.0
"""Measured cost of moving a batch of a few MB from a worker: below three times this, workers do not pay."""

WORKERS_BUSY_FRAC = 0.8
"""More workers help those that are busy for more than this share of their time."""

PREFETCH_LOAD_FRAC = 0.95
"""Workers that are loaded less than this are fast enough on average: depth is what is missing."""

TENSORS_SEND_NS = 1_000_000
"""Sending a batch of tensors takes no longer than this, whatever its size, because tensors are in shared memory (0.3 to
1.3 ms in runs of 25 programs, with 0.02 to 46 MB)."""

LARGE_BATCH_BYTES = 1 << 20
"""How a batch is shared between processes matters from this size on; below it, other ways only add work."""

OPENING_FRAC = 0.2
"""Share of reading in opening files from which their number matters."""

SMALL_FILE_BYTES = 1 << 20
"""Reading a file of this size or more takes longer than opening it."""

MOST_CACHED_BYTES = 256 << 30
"""Keeping decoded samples is not suggested when they take more than this."""

CACHED_BYTES_PER_S = 1e9
"""How fast a worker reads a file that is in the page cache, copying included: a cautious figure."""

COLD_RATIO = 1.5
"""Reading in the first epoch over that in later ones."""

SAMPLER_FRAC = 0.05
"""Share of the step in choosing samples."""

INDEXED_LEFT_FRAC = 0.06
"""Part of fetching one by one that an index operation on the whole batch takes; 0.04 to 0.09 in five measured programs."""

CACHES_FRAC = 0.15
"""Part of the computing that goes too where the training thread fetches: thousands of small tensors pass through its
caches. 6, 25 and 28 % in three measured programs."""

FREEING_NS = 500_000.0
"""Freeing that takes less is left out."""

LOOKUP_FRAC = 0.05
"""What is left of reading besides moving the bytes."""

READER_NEED = 0.5
"""A reader of the user's own computes, so that a thread of Python would hold the training up, from this need of a processor on."""
