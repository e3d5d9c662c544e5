"""What the collector noted in rank.json of probe, sampler, logging and arithmetic; what is damaged counts as not noted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from collector.format.noise import quantile_of_t
from collector.format.steps import read_integers, train_steps
from profiler_server.diagnosis.limits.data import PROBED_FRAC, PROBED_STEPS
from profiler_server.facts.loading import InputFreeStep, SamplerTimes
from profiler_server.facts.machine import Products, Subnormals
from profiler_server.facts.steps import Logged

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


_MOST_TEXT = 100


def read_sampler(facts: Mapping[str, Any], loader: int) -> SamplerTimes | None:
    """Return what the sampler of a loader took, None where that was not recorded."""
    entries = facts.get("samplers")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("loader") == loader:
            return _read_entry(entry)
    return None


def _read_entry(entry: Mapping[str, Any]) -> SamplerTimes | None:
    counts = [entry.get(name) for name in ("epochs", "batches", "first_ns", "rest_ns", "longest_ns")]
    known = [count for count in counts if isinstance(count, int) and not isinstance(count, bool) and count >= 0]
    if len(known) < len(counts):
        return None
    epochs, batches, first_ns, rest_ns, longest_ns = known
    if not epochs or batches < 2:
        return None
    usual_ns = max(rest_ns - longest_ns, 0) / (batches - 1)
    return SamplerTimes(str(entry.get("kind", "sampler"))[:_MOST_TEXT], usual_ns, first_ns / epochs, epochs)


def read_logged(facts: Mapping[str, Any]) -> Logged | None:
    """Return what was noted of logging, None for nothing."""
    noted = facts.get("logging")
    steps = noted.get("steps") if isinstance(noted, Mapping) else None
    entries = noted.get("libraries") if isinstance(noted, Mapping) else None
    if not _is_count(steps) or not steps or not isinstance(entries, list):
        return None
    found = [entry for entry in entries if isinstance(entry, Mapping) and _is_whole(entry)]
    if not found:
        return None
    most = max(found, key=lambda entry: int(entry["total_ns"]))
    name = str(most.get("name", ""))[:_MOST_TEXT]
    return Logged(name, most["calls"], most["total_ns"] / steps, most["longest_ns"])


def _is_whole(entry: Mapping[str, Any]) -> bool:
    return all(_is_count(entry.get(name)) for name in ("calls", "total_ns", "longest_ns"))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_GROUPS = ("parameters", "gradients", "states")
_MOST = 10**15
_MOST_SHAPES = 8


def read_subnormals(facts: Mapping[str, Any]) -> tuple[Subnormals, ...]:
    """Read the groups that were looked at; what is damaged counts as not looked at."""
    found = facts.get("subnormals")
    groups = [_read_group(name, found.get(name)) for name in _GROUPS] if isinstance(found, Mapping) else []
    return tuple(group for group in groups if group is not None)


def _read_group(name: str, entry: Any) -> Subnormals | None:
    names = ("count", "subnormal", "plain_ns", "flushed_ns")
    numbers = _list_numbers(entry, names)
    if len(numbers) < len(names) or not numbers[0] or numbers[1] > numbers[0]:
        return None
    return Subnormals(name, *numbers)


def read_products(facts: Mapping[str, Any]) -> Products | None:
    """Read the timed products; None where there are none, or what is written is damaged."""
    found = facts.get("bfloat16")
    if not isinstance(found, Mapping):
        return None
    names, linear = ("rows", "float32_ns", "bfloat16_ns"), found.get("linear_frac")
    numbers = _list_numbers(found, names)
    is_share = isinstance(linear, (int, float)) and not isinstance(linear, bool) and math.isfinite(linear)
    if len(numbers) < len(names) or not all(numbers) or not is_share:
        return None
    rows, float32_ns, bfloat16_ns = numbers
    shapes = tuple(_list_shapes(found.get("shapes")))
    words = str(found.get("instructions", ""))[:40]
    return Products(words, rows, shapes, float32_ns, bfloat16_ns, float(linear or 0.0), found.get("autocast") is True)


def _list_numbers(entry: Any, names: tuple[str, ...]) -> list[int]:
    """Return the fields that are whole numbers; fewer than there are names where one is missing or damaged."""
    values = [entry.get(name) for name in names] if isinstance(entry, Mapping) else []
    return [value for value in values if value is not None and _is_number(value)]


def _list_shapes(value: Any) -> list[tuple[int, int]]:
    pairs = value[:_MOST_SHAPES] if isinstance(value, list) else []
    return [
        (pair[0], pair[1]) for pair in pairs if isinstance(pair, list) and len(pair) == 2 and all(map(_is_number, pair))
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST
