"""Samples per second."""

from __future__ import annotations

import pyarrow as pa

from collector.format.steps import read_integers, select_steps, train_steps


def measure_throughput(steps: pa.Table) -> float | None:
    """Return samples per second over the steps that the average covers, None where no batch had a known size."""
    kept = select_steps(steps).kept
    train = train_steps(steps)
    samples = int(read_integers(train, "samples", absent=0)[kept].sum())
    length_ns = int(read_integers(train, "duration_ns")[kept].sum())
    return samples * 1e9 / length_ns if samples and length_ns else None
