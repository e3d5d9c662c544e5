"""Work and counters of GPUs, which have packets of their own: torch's CUPTI back end writes kernels in no other way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from collector.traces.pftrace.arguments import is_shallow
from collector.traces.pftrace.state import (
    ARGUMENTS,
    COUNTERS,
    KERNELS,
    NAMES,
    STAGES,
    Id,
    Sequence,
    Stage,
    quote,
    read_text,
)
from collector.traces.pftrace.wire import read_fields, to_double, to_signed

NAMELESS = b'"(a name that the file lacks)"'
# Tags: eight times the number of a field, plus its type.
_LENGTH, _GPU, _QUEUE_IID, _QUEUE, _STAGE_IID, _NAME_IID, _NAME, _KERNEL_IID = 16, 88, 104, 24, 112, 160, 138, 152
_LAUNCH, _EXTRA = 170, 50
_SIZES, _ARGUMENT = {10: "grid", 18: "block"}, 26
_X, _Y, _Z = 8, 16, 24
_ARGUMENT_IID, _ARGUMENT_NAME, _INTEGER, _UNSIGNED, _DOUBLE = 8, 18, 24, 32, 41
_EXTRA_NAME, _EXTRA_VALUE = 10, 18
_COUNTER, _COUNTER_GPU, _COUNTERS_IID, _COUNTER_ID, _COUNTED, _MEASURED = 18, 24, 32, 8, 16, 25

_CATEGORIES = {"Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Annotation": "gpu_user_annotation"}
_NAMES = {"device id": "device", "context id": "context", "stream id": "stream"}
_LAUNCH_NAMES = {"registers_per_thread": "registers per thread", "shared_mem_dynamic": "shared memory"}
_UNKNOWN = Stage("", False)
_VALUES = frozenset("-0123456789[{")


@dataclass(frozen=True)
class Work:
    """A kernel, a copy, or a range on a stream. `name` and `arguments` are JSON."""

    device: int
    queue: Id
    name: bytes
    category: str
    arguments: bytes
    length_ns: int


def read_work(data: bytes, sequence: Sequence) -> Work:
    fields = read_fields(data)
    parts = dict(fields)
    stage: Stage = sequence.find(STAGES, parts.get(_STAGE_IID, 0), _UNKNOWN)
    queue: Stage = sequence.find(STAGES, parts.get(_QUEUE_IID, 0), _UNKNOWN)
    arguments = dict(_read_extra(content) for key, content in fields if key == _EXTRA)
    arguments |= _read_launch(parts.get(_LAUNCH, b""), sequence)
    name = sequence.find(NAMES, parts.get(_NAME_IID, 0), b"") or sequence.find(KERNELS, parts.get(_KERNEL_IID, 0), b"")
    return Work(
        to_signed(parts.get(_GPU, 0)),
        queue.name or parts.get(_QUEUE_IID, parts.get(_QUEUE, 0)),
        name or (quote(parts[_NAME]) if _NAME in parts else quote(stage.name.encode())),
        _CATEGORIES.get(stage.name, "kernel" if stage.is_compute or "grid" in arguments else stage.name),
        msgspec.json.encode(arguments)[1:-1],
        parts.get(_LENGTH, 0),
    )


def _read_launch(data: bytes, sequence: Sequence) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for key, content in read_fields(data):
        if key in _SIZES:
            parts = dict(read_fields(content))
            arguments[_SIZES[key]] = [parts.get(axis, 1) for axis in (_X, _Y, _Z)]
        elif key == _ARGUMENT:
            parts = dict(read_fields(content))
            name = sequence.find(ARGUMENTS, parts.get(_ARGUMENT_IID, 0), "") or read_text(
                parts.get(_ARGUMENT_NAME, b"")
            )
            value = parts.get(_UNSIGNED, to_signed(parts.get(_INTEGER, 0)))
            arguments[_LAUNCH_NAMES.get(name, name)] = to_double(parts[_DOUBLE]) if _DOUBLE in parts else value
    return arguments


def _read_extra(data: bytes) -> tuple[str, Any]:
    """Return one of the further data of a GPU's work. Its values are texts; those of numbers and lists are read."""
    parts = dict(read_fields(data))
    name, value = read_text(parts.get(_EXTRA_NAME, b"")), read_text(parts.get(_EXTRA_VALUE, b""))
    name = _NAMES.get(name, name)
    if value[:1] in _VALUES and is_shallow(parts[_EXTRA_VALUE]):
        with suppress(msgspec.DecodeError):
            return name, msgspec.json.decode(value)
    return name, value


def read_counters(data: bytes, sequence: Sequence) -> Iterator[tuple[str, bytes, float]]:
    """Yield the counters of a GPU: a name for the GPU, the name of the counter as JSON, its value."""
    fields = read_fields(data)
    parts = dict(fields)
    device, names = sequence.find(COUNTERS, parts.get(_COUNTERS_IID, 0), (None, {}))
    device = parts.get(_COUNTER_GPU, device)
    for key, content in fields:
        if key == _COUNTER:
            counter = dict(read_fields(content))
            value = to_double(counter[_MEASURED]) if _MEASURED in counter else to_signed(counter.get(_COUNTED, 0))
            yield f"GPU {device or 0} counters", names.get(counter.get(_COUNTER_ID, 0), NAMELESS), value
