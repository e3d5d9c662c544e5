"""The facts in rank.json on probe, unused gradients, sampler, logging, arithmetic, sources and completeness.

A damaged fact counts as missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Meta, Struct, field

from collector.format.noise import quantile_of_t
from collector.format.steps import read_integers, train_steps
from profiler_server.diagnosis.limits.data import PROBED_FRAC, PROBED_STEPS
from profiler_server.facts.loading import InputFreeStep, SamplerTimes
from profiler_server.facts.machine import Products, Subnormals
from profiler_server.facts.steps import Logged, ModelCalls, UnusedGradients

_MOST_ROUNDS, _MOST_STEPS, _MOST_SHAPES, _MOST_TEXT = 64, 4096, 8, 120
_MOST_SUMS, _MOST_GAPS = 1 << 16, 1000
_COVERED = 0.9
"""The upper quantile of the range: four of five repetitions should fall inside, as for predicted steps."""
_GROUPS = ("parameters", "gradients", "states")
Count = Annotated[int, Meta(ge=0)]
Some = Annotated[int, Meta(ge=1)]
Time = Annotated[int, Meta(ge=0, le=10**13)]
Number = Annotated[int, Meta(ge=0, le=10**15)]
T = TypeVar("T")


def _take(value: Any, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def _take_each(values: Any, kind: type[T]) -> list[T]:
    found = (_take(value, kind) for value in (values if isinstance(values, list) else ()))
    return [value for value in found if value is not None]


class _Round(Struct):
    first_step: Any = None
    step_ns: list[Any] = field(default_factory=list)

    @property
    def lengths(self) -> list[int]:
        return [length for length in _take_each(self.step_ns[:_MOST_STEPS], Time) if length]


class _Probe(Struct):
    rounds: list[Any] = field(default_factory=list)
    cost_ns: Any = 0


def read_probe(facts: Mapping[str, Any], steps: pa.Table | None = None) -> InputFreeStep | None:
    """Return the step with its batch ready, as the probe measured it (`collector.context.probing`); None with too few
    samples.

    `steps` are rows of the table `steps`, with `step`, `kind` and `data_wait_ns`.
    """
    found = _take(facts.get("probe"), _Probe) or _Probe()
    rounds = _take_each(found.rounds[:_MOST_ROUNDS], _Round)
    lengths = [length for entry in rounds for length in entry.lengths]
    if len(lengths) < PROBED_STEPS:
        return None
    # On a device the host runs ahead: only a whole round takes as long as its work.
    mean = sum(lengths) / len(lengths)
    half = max(_bound_mean(lengths), PROBED_FRAC * mean)
    cost_ns = _take(found.cost_ns, Time) or 0
    counts = len(lengths), sum(bool(entry.lengths) for entry in rounds)
    return InputFreeStep(mean, mean - half, mean + half, *counts, cost_ns, _find_receiving(rounds, steps))


def _find_receiving(rounds: list[_Round], steps: pa.Table | None) -> float | None:
    firsts = [(_take(entry.first_step, Time), len(entry.lengths)) for entry in rounds]
    numbers = [first + at for first, count in firsts if first is not None for at in range(count)]
    if steps is None or not numbers:
        return None
    train = train_steps(steps)
    waits = read_integers(train, "data_wait_ns")[np.isin(read_integers(train, "step"), numbers)]
    return float(waits.mean()) if len(waits) else None


def _bound_mean(lengths: list[int]) -> float:
    error = float(np.std(lengths, ddof=1)) / math.sqrt(len(lengths))
    return min(quantile_of_t(len(lengths) - 1, _COVERED) * error, 0.9 * float(np.mean(lengths)))


class _Unused(Struct):
    parameters: Some
    updated: Count
    held: Count = 0
    step: Number = 0
    nodes: Annotated[list[tuple[Number, Number, Number, int]], Meta(max_length=_MOST_STEPS)] = field(
        default_factory=list
    )


def read_unused_gradients(facts: Mapping[str, Any]) -> UnusedGradients | None:
    """Return the gradients that no update used, None if all were used or nothing is known."""
    found = _take(facts.get("unused_gradients"), _Unused)
    if found is None:
        return None
    held = min(found.held, found.parameters)
    return UnusedGradients(found.parameters, held, found.updated, found.step, tuple(found.nodes))


Share = Annotated[float, Meta(ge=0.0, le=1.0)]
_MOST_CALLED = 16


class _Called(Struct):
    looks: Some
    calls: Some
    padded: Count
    useful_frac: Share
    longest_frac: Share
    width: Number
    rows: Number
    again: Count
    again_ns: Time
    compared: Count = 0
    known: Count = 0
    known_ns: Time = 0
    model: Any = ""
    place: Any = ""


def read_model_calls(facts: Mapping[str, Any]) -> tuple[ModelCalls, ...]:
    """Return the module calls with padding or repetition, among the calls that were examined."""
    found = _take_each(facts.get("calls"), _Called)[:_MOST_CALLED]
    texts = [{name: str(getattr(entry, name))[:_MOST_TEXT] for name in ("model", "place")} for entry in found]
    return tuple(ModelCalls(**(msgspec.structs.asdict(entry) | text)) for entry, text in zip(found, texts, strict=True))


class _Sampler(Struct):
    epochs: Some
    batches: Annotated[int, Meta(ge=2)]
    first_ns: Count
    rest_ns: Count
    longest_ns: Count
    kind: Any = "sampler"


def read_sampler(facts: Mapping[str, Any], loader: int) -> SamplerTimes | None:
    """Return the time of choosing samples of a loader on the training thread, or None if unrecorded."""
    entries = _take_each(facts.get("samplers"), dict)
    found = _take(next((entry for entry in entries if entry.get("loader") == loader), None), _Sampler)
    if found is None:
        return None
    usual_ns = max(found.rest_ns - found.longest_ns, 0) / (found.batches - 1)
    return SamplerTimes(str(found.kind)[:_MOST_TEXT], usual_ns)


class _Library(Struct):
    calls: Count
    total_ns: Count
    longest_ns: Count
    name: Any = ""


class _Logging(Struct):
    steps: Some
    libraries: list[Any]


def read_logged(facts: Mapping[str, Any]) -> Logged | None:
    """Return the times of the logging library that took most time on the training thread, or None if unrecorded."""
    noted = _take(facts.get("logging"), _Logging)
    most = max(_take_each(noted.libraries, _Library), key=lambda entry: entry.total_ns, default=None) if noted else None
    if noted is None or most is None:
        return None
    return Logged(str(most.name)[:_MOST_TEXT], most.calls, most.total_ns / noted.steps, most.longest_ns)


class _Group(Struct):
    count: Annotated[int, Meta(ge=1, le=10**15)]
    subnormal: Number
    plain_ns: Number
    flushed_ns: Number


def read_subnormals(facts: Mapping[str, Any]) -> tuple[Subnormals, ...]:
    """Return the groups of numbers that the probe of arithmetic examined (`collector/signals/environment.py`)."""
    noted = _take(facts.get("subnormals"), dict) or {}
    groups = ((name, _take(noted.get(name), _Group)) for name in _GROUPS)
    return tuple(
        Subnormals(name, group.count, group.subnormal, group.plain_ns, group.flushed_ns)
        for name, group in groups
        if group is not None and group.subnormal <= group.count
    )


class _Products(Struct):
    rows: Annotated[int, Meta(ge=1, le=10**15)]
    float32_ns: Annotated[int, Meta(ge=1, le=10**15)]
    bfloat16_ns: Annotated[int, Meta(ge=1, le=10**15)]
    linear_frac: float
    shapes: Any = None
    instructions: Any = ""
    autocast: Any = None


def read_products(facts: Mapping[str, Any]) -> Products | None:
    """Return the matrix products that the probe of arithmetic timed, or None if unrecorded."""
    found = _take(facts.get("bfloat16"), _Products)
    if found is None or not math.isfinite(found.linear_frac):
        return None
    pairs = found.shapes[:_MOST_SHAPES] if isinstance(found.shapes, list) else []
    shapes = tuple(_take_each(pairs, tuple[Number, Number]))
    times = found.float32_ns, found.bfloat16_ns, found.linear_frac
    return Products(str(found.instructions)[:40], shapes, *times, found.autocast is True)


def read_source_lines(facts: Mapping[str, Any]) -> dict[str, dict[int, str]]:
    """Return the recorded text of the user's lines, by file and line."""
    files = facts.get("source_lines")
    found = {file: _take(lines, dict[str, str]) for file, lines in files.items()} if isinstance(files, dict) else {}
    return {
        file: {int(number): text[:_MOST_TEXT] for number, text in lines.items() if number.isdecimal()}
        for file, lines in found.items()
        if lines is not None
    }


def read_source_sums(facts: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the recorded checksums of the lines of the user's files, by the name of the file without its folders."""
    files = facts.get("source_sums")
    found = {file: _take(sums, str) for file, sums in files.items()} if isinstance(files, dict) else {}
    return {
        file.rpartition("/")[2]: tuple(sums[at : at + 4] for at in range(0, len(sums), 4))
        for file, sums in found.items()
        if sums is not None and len(sums) <= _MOST_SUMS
    }


def read_completeness(facts: Mapping[str, Any]) -> str | None:
    """Return the result of the check of a trace; None if the trace was not checked.

    The result is `complete`, or a text on gaps and impossible values, cut at 1,000 characters.
    """
    found = facts.get("completeness")
    return found[:_MOST_GAPS] if isinstance(found, str) and found else None
