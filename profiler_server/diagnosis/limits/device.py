"""Limits of the rules on the device, on copies to it and on precision."""

from __future__ import annotations

DEVICE_IDLE_FRAC = 0.30
"""Launches matter if the device idles at least this share of the step, and `LAUNCH_IDLE_FRAC` is exceeded."""

LAUNCH_IDLE_FRAC = 0.5
"""Launches matter only if more than this share of the device's idle time lies before late launches."""

FULL_PRECISION_FRAC = 0.3
"""Precision matters from this share of the kernels' time."""

VOLTA, AMPERE = 7, 8
"""Compute capabilities with tensor cores: for 16-bit floats, and for 32-bit floats (TF32)."""

SPARE_MEMORY_FRAC = 0.5
"""A device has memory to spare if at least this share of it was never used."""

UNFILLED_FRAC = 0.5
"""Kernels are too small for the device if they leave this share of its multiprocessors idle."""

PAGEABLE_FRAC = 0.05
"""Share of the step before the forward from which pageable copies matter."""

BLOCKING_FRAC = 0.08
"""Share of the step before the forward from which copies from pinned memory matter."""

PREPARE_FRAC = 0.10
"""Share of the step from which preparation on the recorded thread matters, without a device."""

FLOAT64_FRAC = 0.5
"""A model is trained in double precision when at least this share of its parameters is float64."""

FLOAT64_SAVED_FRAC = 0.5
"""Share of an operator's time that float32 saves: half the bytes, and twice the numbers per vector register."""

ANOMALY_GAINS = 1.5
"""The gain without anomaly detection is predicted only if the least cost of anomaly detection is this many times
`MIN_GAIN_FRAC`. Noise raises the required gain."""

TRACEBACK_NS = (30_000.0, 55_000.0, 190_000.0)
"""Measured time of one traceback: of five frames, of ten, and of forty in a large framework."""

MOST_OF_FORWARD = 0.9
"""Largest share of the forward that is attributed to keeping tracebacks."""
