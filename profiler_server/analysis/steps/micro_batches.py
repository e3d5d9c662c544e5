"""Gradient accumulation: how many batches a step passes through the model before it updates the parameters."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from collector.format.steps import read_integers, select_steps, train_steps


def count_micro_batches(steps: pa.Table) -> int:
    """Return the micro-batches of the usual step, 1 where it has one batch and one update.

    A step accumulates when each of its backwards had a batch of its own and one update followed; several models that
    train on one batch, or several updates, are no accumulation.
    """
    kept = select_steps(steps).kept
    if not kept.any():
        return 1
    train = train_steps(steps)
    fetches, backwards, updates = (
        read_integers(train, name)[kept] for name in ("fetches", "backwards", "optimizer_steps")
    )
    usual = int(np.median(backwards))
    accumulates = (backwards == fetches) & (updates <= 1)
    return usual if usual > 1 and accumulates.mean() > 0.5 else 1
