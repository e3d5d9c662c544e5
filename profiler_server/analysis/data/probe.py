"""The step whose batch is ready, as the probe measured it in the run (`collector.context.probing`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from collector.format.noise import quantile_of_t
from collector.format.steps import read_integers, train_steps
from profiler_server.diagnosis.limits.data import PROBED_FRAC, PROBED_STEPS
from profiler_server.facts.loading import InputFreeStep

_MOST_ROUNDS, _MOST_STEPS, _MOST_NS = 64, 4096, 10**13
_COVERED = 0.9
"""Upper quantile of the range: four of five repetitions should fall inside, as for predicted steps."""


def read_probe(facts: Mapping[str, Any], steps: pa.Table | None = None) -> InputFreeStep | None:
    """Read what the collector noted in rank.json; None where there is nothing, too little, or what is no time.

    `steps` are rows of the table of that name, with `step`, `kind` and `data_wait_ns`.
    """
    found = facts.get("probe")
    if not isinstance(found, Mapping):
        return None
    noted = found.get("rounds")
    entries = noted[:_MOST_ROUNDS] if isinstance(noted, list) else []
    rounds = [_read_round(entry) for entry in entries]
    lengths = [length for entry in rounds for length in entry]
    if len(lengths) < PROBED_STEPS:
        return None
    # On a device the host runs ahead: only a round as a whole is as long as its work.
    mean = sum(lengths) / len(lengths)
    half = max(_bound_mean(lengths), PROBED_FRAC * mean)
    cost = found.get("cost_ns")
    cost_ns = cost if isinstance(cost, int) and _is_time(cost) else 0
    received_ns = _find_receiving(entries, steps)
    return InputFreeStep(
        mean, mean - half, mean + half, len(lengths), len([r for r in rounds if r]), cost_ns, received_ns
    )


def _find_receiving(entries: list[Any], steps: pa.Table | None) -> float | None:
    """Return the mean time in the loader of the measured steps."""
    firsts = [(entry.get("first_step"), len(_read_round(entry))) for entry in entries if isinstance(entry, Mapping)]
    numbers = [
        first + at for first, count in firsts if isinstance(first, int) and _is_time(first) for at in range(count)
    ]
    if steps is None or not numbers:
        return None
    train = train_steps(steps)
    waits = read_integers(train, "data_wait_ns")[np.isin(read_integers(train, "step"), numbers)]
    return float(waits.mean()) if len(waits) else None


def _read_round(entry: Any) -> list[int]:
    lengths = entry.get("step_ns") if isinstance(entry, Mapping) else None
    if not isinstance(lengths, list):
        return []
    return [length for length in lengths[:_MOST_STEPS] if _is_time(length) and length > 0]


def _is_time(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_NS


def _bound_mean(lengths: list[int]) -> float:
    spread = float(np.std(lengths, ddof=1))
    return min(
        quantile_of_t(len(lengths) - 1, _COVERED) * spread / math.sqrt(len(lengths)), 0.9 * float(np.mean(lengths))
    )
