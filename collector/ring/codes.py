"""The events of the word log. Each is ready to be added to a payload: `words[…] = now() + FETCH_START`."""

from __future__ import annotations

from collector.ring.words import CODE_SHIFT

# Timed: the payload is a perf_counter_ns reading.
FETCH_START = 1 << CODE_SHIFT
FETCH_END = 2 << CODE_SHIFT
FETCH_STOP = 3 << CODE_SHIFT
"""A fetch that ended the iteration instead of giving a batch."""
LOADER_START = 4 << CODE_SHIFT
LOADER_READY = 5 << CODE_SHIFT
FORWARD_START = 6 << CODE_SHIFT
FORWARD_END = 7 << CODE_SHIFT
BACKWARD_START = 8 << CODE_SHIFT
BACKWARD_END = 9 << CODE_SHIFT
UPDATE_START = 10 << CODE_SHIFT
UPDATE_END = 11 << CODE_SHIFT
ZERO_START = 12 << CODE_SHIFT
ZERO_END = 13 << CODE_SHIFT
SCALER_START = 14 << CODE_SHIFT
SCALER_END = 15 << CODE_SHIFT
COLLECTIVE_START = 16 << CODE_SHIFT
COLLECTIVE_END = 17 << CODE_SHIFT
GC_START = 18 << CODE_SHIFT
GC_END = 19 << CODE_SHIFT
STEP_MARK = 20 << CODE_SHIFT
"""The user called step()."""
PAUSE = 21 << CODE_SHIFT
RESUME = 22 << CODE_SHIFT
FORWARD_POINT = 23 << CODE_SHIFT
"""A module named by FP_POINT was called."""
BACKWARD_POINT = 24 << CODE_SHIFT
"""A gradient of a module named by BP_POINT is ready."""
STALL_START = 25 << CODE_SHIFT
"""The collector itself holds the training thread, to open or save a detailed window."""
STALL_END = 26 << CODE_SHIFT
CLOSURE_START = 27 << CODE_SHIFT
"""Inside of an update, the user's closure begins: its time is the loop's, not the optimizer's."""
CLOSURE_END = 28 << CODE_SHIFT
READ_START = 29 << CODE_SHIFT
"""The training thread begins to read its input by itself, outside of any fetch."""
READ_END = 30 << CODE_SHIFT
BATCH_START = 31 << CODE_SHIFT
"""The user marks a batch of a loop that only infers."""
BATCH_END = 32 << CODE_SHIFT
LAST_TIMED = 63 << CODE_SHIFT

# Not timed: the payload is a value.
LOADER = 64 << CODE_SHIFT
"""Before a fetch: epoch and loader, see `packing.pack_fetch`."""
OWN_QUEUE = 0xFFFF
"""The loader of a fetch from a queue of the user's."""
BATCH = 65 << CODE_SHIFT
"""Before a fetch: number of the batch within the epoch."""
QUEUE = 66 << CODE_SHIFT
"""Before a fetch: what the loader holds, see `packing.pack_queues`."""
SAMPLES = 67 << CODE_SHIFT
"""After a fetch: samples in the batch."""
NO_GRAD = 68 << CODE_SHIFT
"""After FORWARD_START: gradients are off; which class of modules is called, in the order in which they were found."""
STEP_ENDS_NEXT = 69 << CODE_SHIFT
"""Training step number n ends at the time of the next timed word."""
STEP_ENDED = 70 << CODE_SHIFT
"""Training step number n ended with the last update."""
REDUCED = 71 << CODE_SHIFT
"""After a backward: ns in which DDP reduced its gradients, hidden ones included."""
DETAILED = 72 << CODE_SHIFT
"""1: a detailed window is open from here on; 0: it is closed."""
CALLED = 75 << CODE_SHIFT
"""After COLLECTIVE_END, or after REDUCED: which call it was, see `packing.pack_call`."""
CALLED_BYTES = 76 << CODE_SHIFT
"""After CALLED: bytes of its message."""
WAITED = 77 << CODE_SHIFT
"""After COLLECTIVE_END: it was the wait for the call of this serial. Of versions before 0.4.0."""
REDUCED_FROM = 78 << CODE_SHIFT
"""After REDUCED: the perf_counter_ns reading at which the reduction began."""
DEVICE_STEP = 79 << CODE_SHIFT
"""The step that the device times after it are of; it lies some steps back."""
DEVICE_PHASE = 80 << CODE_SHIFT
"""After DEVICE_STEP: a phase and its time, see `packing.pack_device_phase`."""
SPLIT_FETCHES = 73 << CODE_SHIFT
"""Before STEP_ENDS_NEXT: the steps up to number n ended at the last fetches of the open row, one each."""
SPLIT_UPDATES = 74 << CODE_SHIFT
"""The steps up to number n ended at the updates of the open row: there are no fetches that could tell them apart."""
SPLIT_BACKWARDS = 81 << CODE_SHIFT
"""The steps up to number n ended at the last backwards of the open row, one each: their updates are not seen."""
NOT_COUNTED = 82 << CODE_SHIFT
"""The user says that the batch of the open row does not count, in a loop that only infers."""
PROBED = 83 << CODE_SHIFT
"""1: the probe holds batches back, or steps find a fuller queue because it did, from here on; 0: no more."""
AWAITED = 84 << CODE_SHIFT
"""After COLLECTIVE_START: the wait for the call of this serial begins; 0: it has failed."""
