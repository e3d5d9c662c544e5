"""Trace files built in code, and where the real samples lie.

A builder gives events as a profiler would write them; a test then bends the one thing that it is about.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

SAMPLES = Path(os.environ.get("STEPSCOPE_SAMPLES", Path(__file__).parents[2] / "../shared/traces"))
"""Real traces that are too large to carry; STEPSCOPE_SAMPLES names another folder of them."""

BASE_US = 1_000_000
HOST = (100, 100)

Event = dict[str, Any]


CARRIED = Path(__file__).parents[1] / "golden/traces/samples"
"""Real traces that are small enough to be carried."""


def find_sample(name: str) -> Path:
    """Return a real trace; the test is skipped where it is neither carried nor at hand."""
    found = next((folder / name for folder in (CARRIED, SAMPLES) if (folder / name).exists()), None)
    if found is None:
        pytest.skip(f"the sample {name} is not here")
    return found


def list_samples() -> list[str]:
    """Return the names of the real traces that are here."""
    return sorted({path.name for folder in (CARRIED, SAMPLES) for path in folder.glob("*.json.gz")})


def operator(name: str, at_us: float, length_us: float, **args: Any) -> Event:
    return _slice("cpu_op", name, at_us, length_us, HOST, args)


def annotation(name: str, at_us: float, length_us: float, **args: Any) -> Event:
    return _slice("user_annotation", name, at_us, length_us, HOST, args)


def call(at_us: float, length_us: float, correlation: int, name: str = "cudaLaunchKernel") -> Event:
    return _slice("cuda_runtime", name, at_us, length_us, HOST, {"correlation": correlation})


def kernel(name: str, at_us: float, length_us: float, correlation: int, stream: int = 7, **args: Any) -> Event:
    given = {"device": 0, "stream": stream, "correlation": correlation, **args}
    return _slice("kernel", name, at_us, length_us, (0, stream), given)


def copy(at_us: float, length_us: float, correlation: int, **args: Any) -> Event:
    given = {"device": 0, "stream": 7, "correlation": correlation, **args}
    return _slice("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", at_us, length_us, (0, 7), given)


def step(number: int, at_us: float, length_us: float) -> Event:
    return annotation(f"ProfilerStep#{number}", at_us, length_us)


def training_steps(count: int = 3, length_us: float = 1000.0) -> list[Event]:
    """Steps of a loader, a forward with a kernel, a backward with a kernel, and an optimizer."""
    events: list[Event] = []
    for number in range(1, count + 1):
        at = number * length_us
        events += [
            step(number, at, length_us - 1),
            annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 10, 190),
            operator("aten::linear", at + 300, 100, **{"External id": number * 10}),
            operator("aten::addmm", at + 310, 80, **{"External id": number * 10 + 1, "Input Dims": [[8, 4], [4, 2]]}),
            call(at + 320, 10, number * 10 + 1),
            kernel("gemm_sm90", at + 350, 100, number * 10 + 1),
            operator("autograd::engine::evaluate_function: AddmmBackward0", at + 500, 100),
            operator("aten::mm", at + 510, 80),
            call(at + 520, 10, number * 10 + 2),
            kernel("gemm_sm90", at + 550, 150, number * 10 + 2),
            annotation("Optimizer.step#SGD.step", at + 700, 100),
        ]
    return events


def build_trace(events: Sequence[Event], **metadata: Any) -> dict[str, Any]:
    """Return a whole trace with keys before and after the events, as Kineto writes it."""
    properties = [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 85_000_000_000, "numSms": 132, "computeMajor": 9}]
    head = {"schemaVersion": 1, "deviceProperties": properties, **metadata}
    return {**head, "traceEvents": list(events), "traceName": "trace.json", "displayTimeUnit": "ms"}


def write_trace(path: Path, events: Sequence[Event], metadata: Mapping[str, Any] | None = None) -> Path:
    path.write_text(json.dumps(build_trace(events, **(metadata or {})), indent=1), encoding="utf-8")
    return path


def _slice(
    category: str, name: str, at_us: float, length_us: float, place: tuple[int, int], args: Mapping[str, Any]
) -> Event:
    pid, tid = place
    event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": BASE_US + at_us, "dur": length_us}
    return {**event, "args": dict(args)}
