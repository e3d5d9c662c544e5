"""The rules on the device, on copies to it and on precision."""

from __future__ import annotations

DEVICE_IDLE_FRAC = 0.30
"""Launches matter when the device idles at least this share of the step."""

LAUNCH_IDLE_FRAC = 0.5
"""And more than this share of its idle time lies before late launches."""

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

ARITHMETIC_FRAC = 0.75
"""Part of the phases that compute with subnormal numbers that is arithmetic on them."""

ANOMALY_GAINS = 1.5
"""The least that it costs is so many times what a change must save: noise makes the bar higher."""

TRACEBACK_NS = (30_000.0, 55_000.0, 190_000.0)
"""What a traceback takes, as measured: of five frames, of ten, and of forty in a large framework."""

MOST_OF_FORWARD = 0.9
"""The most of the forward that keeping tracebacks is taken for."""
