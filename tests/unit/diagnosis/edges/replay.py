"""Thresholds of the replay of a window: on traces written by a model of host and device, or on the times themselves."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from collector.format.run import Run
from profiler_server.analysis.replay.building import _find_usual
from profiler_server.analysis.replay.critical import find_critical_path
from profiler_server.analysis.replay.reading import replay_rank
from profiler_server.analysis.replay.sightings.buckets import fit_transfers
from profiler_server.analysis.replay.waiting import QUEUE, StreamWork, find_handoffs, find_stream_waits, list_points
from profiler_server.analysis.replay.window import OPERATOR, Window, read_window
from profiler_server.facts.machine import Replayed
from tests.support.traces import call, kernel
from tests.support.window_cases import POINTWISE, allocate, attend
from tests.support.windows import PARTS, Machine, Step, build_window, compute
from tests.unit.diagnosis.edges.base import Edge, whole

STEPS = 4
RECORDED: dict[str, Any] = {"Sequence number": 1}
_KINDS = ("aten::lerp_", "aten::mul_", "aten::add_", "aten::sub_", "aten::div_")


def read(body: Step, find: Callable[[Run], Any], steps: int = STEPS) -> Any:
    """Record steps that do this, and find something in their window."""
    with tempfile.TemporaryDirectory() as folder:
        return find(build_window(Path(folder), body, steps=steps))


def replay(body: Step, steps: int = STEPS) -> Replayed:
    found: Replayed = read(body, lambda run: replay_rank(run.rank()), steps)
    return found


def sees(name: str, body: Step, steps: int = STEPS) -> bool:
    return name in replay(body, steps).seen


def repeat(count: int, act: Step, of: int = STEPS * PARTS) -> Step:
    """Return what does something so many times in all of the window, evenly."""
    parts = itertools.count()

    def body(machine: Machine) -> None:
        part = next(parts)
        for _ in range(count * (part + 1) // of - count * part // of):
            act(machine)
        compute(machine, 5)

    return body


def copy_many(size_bytes: int, count: int = 25 * STEPS) -> Step:
    return repeat(count, lambda machine: machine.copy("aten::to", 2.0, size_bytes))


def bring_home(size_bytes: int) -> Step:
    def body(machine: Machine) -> None:
        compute(machine)
        machine.copy("aten::to", 800.0, size_bytes, blocking=True, kind="DtoH (Device -> Pageable)")

    return body


def make_before(apart_ns: float) -> Step:
    def body(machine: Machine) -> None:
        machine.run("aten::arange", 0.0, 30.0)
        machine.work(apart_ns / 1e3)
        machine.copy("aten::to", 3.0, 4096, blocking=True)
        compute(machine, 2)

    return body


def chain(length: int) -> Step:
    def body(machine: Machine) -> None:
        compute(machine, 2)
        for _ in range(length):
            machine.run("aten::mul", 40.0, 5.0, POINTWISE)

    return body


def attend_after(steps_between: int) -> Step:
    def body(machine: Machine) -> None:
        machine.run("aten::bmm", 60.0)
        for _ in range(steps_between):
            machine.run("aten::mul", 60.0, 5.0, POINTWISE)
        machine.run("aten::softmax", 90.0, 5.0, "softmax_warp_forward", **{"Input Dims": [[8, 16, 1024, 1024]]})
        machine.run("aten::bmm", 60.0)

    return body


def reduce(buckets: int) -> Step:
    def body(machine: Machine) -> None:
        compute(machine, 4)
        for number in range(buckets):
            machine.run("autograd::engine::evaluate_function: MmBackward0", 25.0)
            machine.reduce(80.0 + 25.0 * (number + 1), (number + 1) << 18)
        machine.join()
        machine.run("aten::_foreach_add_", 20.0, 5.0, "multi_tensor_apply")

    return body


def loop(length: int, kinds: int = 1) -> Step:
    def body(machine: Machine) -> None:
        compute(machine, 4)
        for number in range(length):
            machine.run(_KINDS[number % kinds], 2.0, 8.0, POINTWISE)

    return body


def begins_late(kernel_ns: float) -> bool:
    """Say whether a loop over kernels of that length is expected to save less, as they compute for most of it."""

    def body(machine: Machine) -> None:
        for _ in range(200):
            machine.run("aten::lerp_", kernel_ns / 1e3, 8.0, POINTWISE)

    gain = replay(body).seen["per_parameter_loops"].gain
    return gain is not None and gain.frac < 0.8


def queues(ahead: int, launch_us: float) -> bool:
    """Say whether a launch that takes so long, with so many that wait to run, is one that waited for a place."""
    first = itertools.count()

    def body(machine: Machine) -> None:
        if next(first):
            return
        machine.run("aten::mm", 100_000.0)
        for _ in range(ahead - 1):
            machine.run("aten::mm", 1.0, 1.0)
        machine.events.append(call(machine.now_us, launch_us, 10**6))
        machine.events.append(kernel("gemm_sm90", machine.free_us + 1.0, 1.0, 10**6))
        machine.now_us += launch_us
        machine.free_us += 2.0

    def find(run: Run) -> bool:
        window = read_window(run.rank())
        assert window is not None
        return bool((list_points(window, find_handoffs(window)).kind == QUEUE).any())

    return bool(read(body, find, steps=2))


def takes_turns(gap_ns: float, left_frac: float) -> bool:
    """Say whether a thread that does nothing for so long waits for another, which goes on before that is over."""
    begin, end = 1_000, 1_000 + round(gap_ns)
    done = round(end - left_frac * gap_ns)
    times = np.array([[0, begin], [begin + 10, done], [done + 1, end + 500], [end, end + 900]])
    window = SimpleNamespace(
        threads=(1, 2),
        track=np.array([1, 2, 2, 1]),
        kind=np.full(4, OPERATOR),
        start_ns=times[:, 0],
        end_ns=times[:, 1],
    )
    return bool(find_handoffs(cast(Window, window)))


def waits_for(apart_ns: float, late_ns: float) -> bool:
    """Say whether work that is so late, and begins so long after the end of other work, waits for that."""
    first, end = 1e6, np.array([2e6])
    begin = end + apart_ns
    streams = (
        StreamWork(np.array([0]), np.array([first]), np.array([first]), end),
        StreamWork(np.array([1]), begin - late_ns, begin, begin + 1e6),
    )
    none = np.zeros(0, np.int64)
    window = SimpleNamespace(kind=none, start_ns=none, first_ns=0, match=lambda _: np.zeros(0, np.bool_))
    return bool(list(find_stream_waits(cast(Window, window), streams)))


def leaves_unknown(late_ns: float = 0.0, returns_ns: float = 0.0) -> bool:
    """Say whether the critical path has work, or a wait, that is late for an unknown reason."""
    parts = itertools.count()

    def body(machine: Machine) -> None:
        part = next(parts)
        is_odd = part == 2 * PARTS
        for _ in range(10):
            machine.run("aten::mm", 20.0)
            machine.wait("aten::item")
        if is_odd:
            machine.free_us = machine.now_us + 13.0 + late_ns / 1e3
        machine.run("aten::mm", 20.0)
        begin, machine.now_us = machine.now_us, machine.free_us + (returns_ns / 1e3 if is_odd else 2.0)
        machine.events.append(call(begin, machine.now_us - begin, 10**6 + part, "cudaStreamSynchronize"))

    found = read(body, lambda run: find_critical_path(run.rank()))
    return bool(found.sum_kinds()["unknown"] > 5_000)


def launches_sooner(python_ns: float) -> bool:
    """Say whether compiling shortens Python between operators that takes so long."""

    def body(machine: Machine) -> None:
        for _ in range(10):
            machine.run("aten::mm", 10.0)
            machine.work(python_ns / 1e3)

    return replay(body).gains["launches"].frac > 0.3


def explains(misfit: float) -> bool:
    """Say whether three sizes explain their times, of which the middle one is this far from the best fit."""
    sizes = np.array([1_000, 2_000, 3_000])
    line = 1e9 + 1e6 * sizes
    weight = misfit * (1 - misfit) / (2 * line[1])
    off = (np.sqrt(1 + 4 * weight * line) - 1) / 2
    off[1] = -misfit
    return fit_transfers(sizes, np.round(line / (1 + off)).astype(np.int64)) is not None


def tells_apart(ratio: float) -> bool:
    sizes = np.array([100_000, round(100_000 * ratio)])
    return fit_transfers(sizes, 50_000 + sizes) is not None


def is_awaited(after_ns: float) -> bool:
    """Say whether a call waited for work that, by its own clock, ended so long after the call."""
    stream = StreamWork(np.array([7]), np.array([0.0]), np.array([10.0]), np.array([1e6 + after_ns]))
    return stream.find_awaited(5e5, 1e6) is not None


EDGES: Mapping[str, Edge] = {
    "SMALL_COPY_BYTES": Edge(64 << 10, lambda x: not sees("small_copies", copy_many(whole(x)))),
    "LEAST_SMALL_COPIES": Edge(20, lambda x: sees("small_copies", copy_many(512, whole(x * STEPS)))),
    "LARGE_COPY_BYTES": Edge(1 << 20, lambda x: sees("large_d2h", bring_home(whole(x)))),
    "RIGHT_BEFORE_NS": Edge(200_000, lambda x: not sees("built_on_cpu", make_before(x))),
    "LEAST_CHAIN": Edge(3, lambda x: sees("unfused_pointwise", chain(whole(x)))),
    "MOST_BETWEEN": Edge(12, lambda x: not sees("attention_by_hand", attend_after(whole(x) + 1))),
    "LEAST_KEYS": Edge(32, lambda x: sees("attention_by_hand", lambda machine: attend(machine, whole(x)))),
    "ALLOCATING_STEPS": Edge(3, lambda x: sees("allocator_calls", allocate, steps=whole(x))),
    "LEAST_BUCKETS": Edge(3, lambda x: sees("larger_buckets", reduce(whole(x)))),
    "LEAST_IN_A_ROW": Edge(60, lambda x: sees("per_parameter_loops", loop(whole(x)))),
    "MOST_KINDS": Edge(4, lambda x: not sees("per_parameter_loops", loop(80, whole(x) + 1))),
    "TINY_NS": Edge(5_000.0, begins_late),
    "LEAST_RECORDED": Edge(
        50,
        lambda x: sees(
            "recorded_gradients",
            repeat(whole(x), lambda machine: machine.run("aten::mm", **RECORDED)),
        ),
    ),
    "MOST_MISFIT_FRAC": Edge(0.2, lambda x: not explains(x)),
    "LEAST_SIZES_RATIO": Edge(1.5, tells_apart),
    "TOLERANCE_NS": Edge(2_000, lambda x: not is_awaited(x)),
    "MOST_LAG_NS": Edge(50_000.0, lambda x: _find_usual(np.array([x]), 0.0) < x),
    "USUAL_PERCENT": Edge(95, lambda x: x > _find_usual(np.arange(101.0), 0.0)),
    "FULL_QUEUE": Edge(500, lambda x: queues(whole(x) - 1, 150.0)),
    "LONG_LAUNCH_NS": Edge(100_000, lambda x: queues(550, x / 1e3)),
    "LONG_TURN_NS": Edge(1_000_000, lambda x: takes_turns(x, 0.01)),
    "LAST_FRAC": Edge(0.05, lambda x: not takes_turns(2e6, x)),
    "NEAR_NS": Edge(30_000.0, lambda x: waits_for(1_000.0, x)),
    "AT_ONCE_NS": Edge(5_000.0, lambda x: not waits_for(x, 100_000.0)),
    "UNKNOWN_NS": Edge(10_000.0, lambda x: leaves_unknown(late_ns=x, returns_ns=2_000.0)),
    "LATE_RETURN_NS": Edge(100_000.0, lambda x: leaves_unknown(returns_ns=x)),
    "SHORT_PYTHON_NS": Edge(200_000, lambda x: not launches_sooner(x)),
}
