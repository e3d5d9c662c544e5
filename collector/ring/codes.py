"""Codes of the events in the word log, already shifted: a word is written as `words[…] = now() + FETCH_START`."""

from __future__ import annotations

from collector.ring.words import CODE_SHIFT

# Timed: the payload is a perf_counter_ns reading.
FETCH_START = 1 << CODE_SHIFT
FETCH_END = 2 << CODE_SHIFT
FETCH_STOP = 3 << CODE_SHIFT
"""End of a fetch that gave no batch: the iteration ended, or an error was raised."""
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
"""Call of a module named by FP_POINT."""
BACKWARD_POINT = 24 << CODE_SHIFT
"""Time at which a gradient of a module named by BP_POINT is ready."""
STALL_START = 25 << CODE_SHIFT
"""Start of a stall: Stepscope holds the training thread, such as to open or save a detailed window."""
STALL_END = 26 << CODE_SHIFT
CLOSURE_START = 27 << CODE_SHIFT
"""Start of the user's closure inside an update: its time is the loop's, not the optimizer's."""
CLOSURE_END = 28 << CODE_SHIFT
READ_START = 29 << CODE_SHIFT
"""Start of reading input on the training thread itself, outside of any fetch."""
READ_END = 30 << CODE_SHIFT
BATCH_START = 31 << CODE_SHIFT
"""Start of a batch that the user marks in a loop of inference."""
BATCH_END = 32 << CODE_SHIFT
LAST_TIMED = 63 << CODE_SHIFT

# Not timed: the payload is a value.
LOADER = 64 << CODE_SHIFT
"""Before FETCH_START: epoch and loader, see `packing.pack_fetch`."""
OWN_QUEUE = 0xFFFF
"""Loader number of a fetch from a queue of the user."""
BATCH = 65 << CODE_SHIFT
"""Before FETCH_END: number of the batch within the epoch, from 0."""
QUEUE = 66 << CODE_SHIFT
"""Before FETCH_START: state and depths of the loader's queues, see `packing.pack_queues`."""
SAMPLES = 67 << CODE_SHIFT
"""After a fetch: number of samples in the batch."""
NO_GRAD = 68 << CODE_SHIFT
"""After FORWARD_START: gradients are off. The payload is the number of the called module's class."""
STEP_ENDS_NEXT = 69 << CODE_SHIFT
"""Training step number n ends at the time of the next timed word."""
STEP_ENDED = 70 << CODE_SHIFT
"""Training step number n ended with the last update."""
REDUCED = 71 << CODE_SHIFT
"""After a backward: ns in which DDP reduced its gradients, hidden time included."""
DETAILED = 72 << CODE_SHIFT
"""1: a detailed window opens here; 0: the window closes."""
# 77 was in use before 0.4.0.
CALLED = 75 << CODE_SHIFT
"""After COLLECTIVE_END, or after REDUCED: the kind of the call, see `packing.pack_call`."""
CALLED_BYTES = 76 << CODE_SHIFT
"""After CALLED: bytes of the call's message."""
REDUCED_FROM = 78 << CODE_SHIFT
"""After REDUCED: the perf_counter_ns reading at which the reduction began."""
DEVICE_STEP = 79 << CODE_SHIFT
"""Number of the step to which the following DEVICE_PHASE words belong; this step ended some steps ago."""
DEVICE_PHASE = 80 << CODE_SHIFT
"""After DEVICE_STEP: a phase and its time, see `packing.pack_device_phase`."""
SPLIT_FETCHES = 73 << CODE_SHIFT
"""Before STEP_ENDS_NEXT: the steps up to number n ended at the last fetches of the open row, one step per fetch."""
SPLIT_UPDATES = 74 << CODE_SHIFT
"""The steps up to number n ended at the updates of the open row, since no fetches separate them."""
SPLIT_BACKWARDS = 81 << CODE_SHIFT
"""The steps up to number n ended at the open row's last backwards, one step each. Their updates are unseen."""
NOT_COUNTED = 82 << CODE_SHIFT
"""The user excludes the batch of the open row, in a loop of inference."""
AWAITED = 84 << CODE_SHIFT
"""After COLLECTIVE_START: the wait for the call with this serial begins; 0: the wait has failed."""
