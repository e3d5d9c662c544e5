"""Every threshold of the diagnosis in one place: of the facts, the rules, the readings, the ranking and the verdict.

A share (`_FRAC`) is of the mean step unless its sentence says otherwise. Where a figure has no source it is our choice,
made on planted causes (docs/diagnosis.md).
"""

from __future__ import annotations

# --- how input-bound a step is ---------------------------------------------------------------------------------------

MODERATE_WAIT_FRAC = 0.05
"""From this share of waiting for data a step is moderately input-bound (XProf)."""

HIGH_WAIT_FRAC = 0.20
"""From this share of waiting for data a step is highly input-bound (XProf)."""

INPUT_WAIT_FRAC = 0.08
"""A rule about loading speaks above this share of waiting: over XProf's 5 %, so that noise alone does not reach it."""

SENDING_WAIT_FRAC = 0.5
"""Sending is blamed for a wait for finished batches if it takes this part of it: unpickling costs as much as pickling."""

STARVED_WAIT_FRAC = 0.10
"""From here the slow stage gets a suggestion, even one of lower confidence: the share that bounds a step (below)."""

LATE_FRAC = 0.15
"""Batches count as late when the next one was missing in more than this share of the requests."""

# --- the queues of the loader (MindInsight's rules) ------------------------------------------------------------------

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

QUEUED_FRAC = 0.25
"""The training thread lacks a processor when it queues for one for this share of its time."""

CROWDED_FRAC = 0.10
"""Workers that keep up take processors from the step when the training thread queues for one for this share of its time:
the share that bounds a step. On a host with a processor to spare it was below 5 %."""

HANDOVER_BUSY_FRAC = 0.50
"""Workers that work for this share of their time may be too busy to hand over batches that are ready, or too slow;
those that work less have time to spare, and are not the limit."""

BUSY_WORKERS_FRAC = 0.95
"""Workers that work for this share of their time are the limit, however full the queue looks."""

COMPUTING_FRAC = 0.20
"""Workers that need a processor for less than this share of their work wait, for storage mostly."""

COMPUTED_READ_FRAC = 0.50
"""Reading computes, as Python and decoding do, when opening files and moving their bytes explain less than this share of it."""

OWN_BUSY_FRAC = 0.50
"""A stage of the user's own that works less than this share of its time is not what the others wait for."""

OWN_WAIT_FRAC = 0.20
"""A stage of the user's own is held up by a neighbour when it waits this share of its time for it."""

# --- processors ------------------------------------------------------------------------------------------------------

CAPPED_NEED = 0.5
"""Workers compute, rather than wait, when they need a processor for more than this share of their work."""

CAPPED_DEMAND_FRAC = 0.9
"""From this share of the usable cores in use no processor is left for more workers."""

NOISY_FRAC = 0.25
"""Other programs disturb a run when they take more than this share of the cores."""

BUSIER_FRAC = 0.10
"""The host got busier during a run when others took this share of the cores more at its end, or work waited for
processors this share of its time longer."""

COMPUTE_FRAC = 0.60
"""Threads, and where they run, matter from this share of computing on."""

SPARE_THREADS = 4
"""More threads are suggested from this many free cores per thread on: fewer would not surely be faster, and the workers
need them."""

BUSY_THREADS_FRAC = 0.8
"""Threads that use less than this share of what they could have do not compute, and more of them would not either."""

PARALLEL_FRAC = 0.5
"""Part of forward and backward that is assumed to run on all threads."""

WORKER_CORES = 1.5
"""A worker on more cores than this computes with threads of its own."""

PYTHON_CORES = 0.15
"""Share of a core from which other Python threads of the training process matter."""

THROTTLED_FRAC = 0.05
"""Share of the time that the control group is stopped."""

MEMORY_STALL_FRAC = 0.10
"""Share of the time in which something waits for memory."""

THREADS_COMPUTE_FRAC = 0.30
"""More threads than cores matter when computing is at least this share of the step."""

# --- what a change must gain -----------------------------------------------------------------------------------------

MIN_STEPS = 20
"""Steady steps from which a step time is predicted."""

MIN_GAIN_FRAC = 0.05
"""Share of the step that a change must gain after all doubt."""

MIN_GAIN_NS = 500_000.0
"""And this much time, whatever the step."""

CONTENTION_WEIGHT = 0.25
"""The share that must be gained grows by this, times the share of the cores that other programs use."""

LEAST_CHECK_FRAC, MOST_CHECK_FRAC = 0.75, 1.33
"""The model of the loader is trusted only if, for the run as it is, it gives a step between these shares of the measured
one; otherwise no change to loading is predicted."""

CLOSE_FRAC = 0.10
"""Changes whose gain is within this share of the best are ordered by effort."""

LARGE_PART_FRAC = 0.20
"""A change of uncertain gain is suggested all the same when what it shortens takes at least this share of the step."""

LEAST_LOW_FRAC = 0.10
"""The lower end of a range is at least this share of the predicted step: no change makes a step free."""

EASED_FRAC = 0.3
"""Where a share of the training thread's work goes, the rest may take up to so much of that share less: its data stays in
the caches. In ten programs on processors the rest took 1 to 15 % less, 8 % in the median, where half of the step went; 25
and 28 % less in two where fetching samples one by one, four fifths of the step, went."""

MUTE_WAIT_FRAC = 0.20
"""Above this share of waiting for data, rules on the device and on the update are silent: the loop starves (XProf)."""

HIGH_GAIN_FRAC = 0.20
"""A sure gain of this share of the step is of high severity."""

LOW_GAIN_FRAC = 0.10
"""A gain below this share of the step is of low severity."""

# --- the verdict -----------------------------------------------------------------------------------------------------

BOUND_FRAC = 0.10
"""Something other than computing bounds the step from this share on."""

SURE_FRAC = 0.90
"""A verdict is sure when at least this share of the stretches of the run agree with it."""

UNSEEN_DEVICE = 0.6
"""What is left of the confidence in a verdict on computing when the times of the device were not recorded."""

LIKELY_FRAC = 0.60
"""Below this share of agreeing stretches it is unsure."""

# --- rules on loading ------------------------------------------------------------------------------------------------

IN_MEMORY_NS = 30_000.0
"""A sample that takes less than this comes from memory: worker processes do not pay."""

SEND_NS = 300_000.0
"""Measured cost of moving a batch of a few MB from a worker: below three times this, workers do not pay."""

WORKERS_BUSY_FRAC = 0.8
"""More workers help those that are busy for more than this share of their time."""

PREFETCH_LOAD_FRAC = 0.95
"""Workers that are loaded less than this are fast enough on average: depth is what is missing."""

UNEVEN_SPREAD = 0.5
"""Batches are uneven when their times vary by more than this share of their mean."""

UNEVEN_LOAD_FRAC = 0.7
"""And the median batch would load the workers less than this."""

TENSORS_SEND_NS = 1_000_000
"""Sending a batch of tensors takes no longer than this, whatever its size, because tensors are in shared memory (0.3 to
1.3 ms in runs of 25 programs, with 0.02 to 46 MB)."""

COPY_BYTES_PER_NS = 4.0
"""What is pickled today must first be copied into a tensor; one core copies at least this fast."""

LARGE_BATCH_BYTES = 1 << 20
"""How a batch is shared between processes matters from this size on; below it, other ways only add work."""

OPENING_FRAC = 0.2
"""Share of reading in opening files from which their number matters."""

SMALL_FILE_BYTES = 1 << 20
"""Reading a file of this size or more takes longer than opening it."""

STORAGE_YIELD_FRAC = 0.25
"""The storage is the limit when more workers add less than this share of what they should to the bytes per second."""

MOST_CACHED_BYTES = 256 << 30
"""Keeping decoded samples is not suggested when they take more than this."""

CACHED_BYTES_PER_S = 1e9
"""How fast a worker reads a file that is in the page cache, copying included: a cautious figure."""

COLD_RATIO = 1.5
"""Reading in the first epoch over that in later ones."""

SAMPLER_FRAC = 0.05
"""Share of the step in choosing samples."""

MIN_RESTARTS = 2
"""Restarts of the workers from which they are said to be restarted in every epoch."""

# --- rules on the device ---------------------------------------------------------------------------------------------

DISPATCH_FRAC = 0.15
"""The host launches, rather than runs Python, when it spends this share of the step in operators."""

DEVICE_IDLE_FRAC = 0.30
"""Launches matter when the device idles at least this share of the step."""

LAUNCH_IDLE_FRAC = 0.5
"""And more than this share of its idle time lies before late launches."""

CLOCK_LOST_FRAC = 0.05
"""Share of a device's clock that is lost to heat, over all samples."""

FULL_PRECISION_FRAC = 0.3
"""Precision matters from this share of the kernels' time on."""

VOLTA, AMPERE = 7, 8
"""Compute capabilities: tensor cores that multiply 16-bit floats, and 32-bit ones (TF32)."""

CONVOLUTION_FRAC = 0.3
"""Settings for convolutions matter from this share of the kernels' time on."""

UNUSED_GRADIENTS_FRAC = 0.3
"""Part of the parameters with gradients that no optimizer updates; a few, such as those of an unused head, cost little."""

RECORDED_FRAC = 0.3
"""Gradients are recorded for nothing when at least this share of the operators of a window without a backward do it."""

SPARE_MEMORY_FRAC = 0.5
"""A device has memory to spare when at least this share of it was never held."""

UNFILLED_FRAC = 0.5
"""Kernels are too small for the device when they leave this share of its multiprocessors without work."""

PAGEABLE_FRAC = 0.05
"""Share of the step before the forward from which pageable copies matter."""

BLOCKING_FRAC = 0.08
"""The same of copies from pinned memory."""

PREPARE_FRAC = 0.10
"""The same of preparation on the training thread, without a device."""

# --- rules on the training thread ------------------------------------------------------------------------------------

UPDATE_FRAC = 0.10
"""Share of the step in the update from which its loop is looked at."""

OUTSIDE_FRAC = 0.10
"""Share of the usual step outside of the known calls."""

LOOPED_FRAC = 0.20
"""Share of the step that loops over rows take; of less than that a window cannot tell how much is left without them."""

CHECKPOINT_FRAC = 0.05
"""Share of the steps' time in saving."""

BACKGROUND_SAVED_FRAC = 0.95
"""Part of a save that another thread takes over; the copy of the state that it writes is made by the training thread."""

GC_FRAC = 0.05
"""Share of the step in garbage collection."""

STALL_FRAC = 0.05
"""Share of the time that stalls at even distance cost."""

MIN_STALLS, MOST_STALLS_FRAC = 3, 0.34
"""Fewer stalls than this are chance; more than this share of the steps are no stalls but steps of another kind."""

EVEN_DISTANCE_FRAC = 0.2
"""Distances between stalls count as even when they differ from the median by no more than this share of it."""

ALIKE_FACTOR = 3.0
"""Stalls of the same cause are at most so many times as long or as short as the median one, three in four of them."""

EXPLAINED_FRAC = 0.5
"""Stalls are explained by checkpoints or recompilations when these take at least this share of what the stalls cost."""

MIN_RECOMPILES, RECOMPILE_FRAC = 2, 0.02
"""Recompilations, and the share of the steps' time that they take."""

LOGGING_FRAC = 0.05
"""Share of the step in calls of a library that logs."""

LOGGED_FRAC = 0.6
"""Time outside of the known calls is logging when at least this share of it is."""

COLLECTED_FRAC = 0.6
"""And garbage collection when at least this share of it is; a smaller share is a consequence of the other work there."""

EVALUATION_FRAC = 0.12
"""Share of evaluation in the time of training and evaluation."""

JITTER_FRAC = 1.0
"""Steps vary much when the tenth that are slowest and the tenth that are fastest lie apart by so many usual steps."""

WARM_UP_FRAC, WARM_UP_NS = 0.10, 10e9
"""Share of the recorded training, and time, that the first steps took beyond the usual."""

DRIFT_FRAC, DRIFT_STEPS = 0.15, 60
"""Growth of the usual step from the first sixth of the run to the last, and the steps that it takes to tell."""

DRIFT_PARTS, DRIFT_RISES = 6, 4
"""Parts of the run that are compared, and how often one must be longer than the one before it."""

SHIFT_FRAC, SHIFT_STEPS = 0.10, 100
"""Growth of the usual step at one step of the run, and the steps that it takes to tell it from chance."""

SHIFT_HELD_FRAC = 0.8
"""Part of the run before that step, and of the run after it, that is as short, or as long, as the whole of it."""

SHIFT_FILLS = 2.0
"""How many times the batches that the loader holds must have been used before that step: until the batches made ahead
are used up, steps are shorter than they will be."""

GROWN_FRAC, GROWN_BYTES = 0.10, 64 << 20
"""Growth of the process's memory after the first fifth of the run."""

RECORDING_FRAC = 0.03
"""Share of the step that recording takes from which it is said."""

RECORDING_LARGE_FRAC = 0.10
"""From here recording changes what it measures."""

# --- rules on several ranks ------------------------------------------------------------------------------------------

EXPOSED_FRAC = 0.10
"""Share of the step held by communication, the wait for slower ranks taken out."""

UNSYNCED_FRAC = 0.05
"""Share of the step in reductions that accumulating without them would save."""

MIN_ACCUMULATED = 1.9
"""Backwards per update from which gradients are accumulated."""

GLOO_FRAC = 0.05
"""Share of the step held by gloo with gradients on CUDA devices."""

COPIES_FRAC = 0.05
"""Share of the step in copies of gradients."""

COPIED_BYTES_PER_S = 5e9
"""What one thread copies in memory, reading and writing: a usual figure, not measured."""

ROTATING_FRAC = 0.10
"""Share of the step in which ranks wait for whichever is the slowest."""

LEAST_OF_DELAY, MOST_OF_DELAY = 0.6, 1.25
"""How much of the measured delay of a slow rank is saved by mending it. Less than all: a mended rank varies like the
others and is sometimes the last. Or more: one that overloaded its host slowed down the other ranks on it, too."""

RANK_LOADER_FRAC = 0.10
"""Share of the step that one rank waits for data longer than the others."""

# --- precision -------------------------------------------------------------------------------------------------------

FLOAT64_FRAC = 0.5
"""A model is trained in double precision when at least this share of its parameters is float64."""

FLOAT64_SAVED_FRAC = 0.5
"""Part of their time that operators save in float32: it has half the bytes, and twice the numbers fit a vector register."""

SUBNORMAL_FRAC = 0.01
"""Share of the numbers of one kind that are subnormal."""

SUBNORMAL_SLOWER = 1.5
"""How many times longer a multiplication of such numbers takes than with the subnormal ones flushed to zero."""

BFLOAT16_FASTER = 1.5
"""How many times faster the model's products are in bfloat16, conversions included."""

BFLOAT16_LINEAR_FRAC = 0.5
"""Share of the parameters that must be in matrices; below it products with them are too small a part of the step."""
