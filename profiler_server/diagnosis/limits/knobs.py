"""Limits for settings that are worth a trial."""

from __future__ import annotations

TRIED_FRAC = 0.03
"""A setting that governs less of the step cannot gain what a trial could measure."""

COMPUTED_FRAC = 0.10
"""Threads and compilation are tried from this share of computing."""

UNKNOWN_SMALL_FRAC = 0.25
"""Without a detailed window, this share of computing is taken to be operators too small for several threads."""

MANY_POINTWISE = 100
"""The least number of small elementwise operators in the backward of a step that is worth a compiler. With fewer, a
compiler gained some 5 %."""

TINY_WORK_FRAC = 0.5
"""Workers are needless if the recorded thread would make the batches of a step in this share of its wait."""

SUBNORMAL_FRAC = 0.25
"""Share of computing that flushing is taken to govern. Subnormal numbers are rare, so commoner settings are tried first."""

SEEN_SUBNORMAL_FRAC = 0.005
"""Subnormal numbers are worth a look from this share of the numbers that were read. An instruction works on eight numbers
at once, and one of them that is subnormal makes it some 20 times as long."""

LARGE_FLOPS = 10_000_000
"""A product of matrices of fewer operations is not judged by its rate, because it is mostly overhead."""

SLOW_FLOPS_PER_NS = 10.0
"""A large product in float32 at a lower rate is slow. One core of an ordinary server has ten times as much, and products
with many subnormal numbers had 4 on it."""

REDUCED_FRAC = 0.2
"""Share of the backward that copies gradients for other ranks, beside the wait for them."""
