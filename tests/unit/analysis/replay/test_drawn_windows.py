"""Windows of drawn steps and real ones: what the replay finds in them, and every figure of their graphs and paths.

A figure of a graph stands in the file as its sum and as its sum weighted by place, so that a value that moves is seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collector.format.run import RankRun, Run
from collector.traces.importing import import_trace
from profiler_server.analysis.replay.building import build_graph
from profiler_server.analysis.replay.critical import find_critical_path
from profiler_server.analysis.replay.graph import Changes, Edges, Graph, bound_savings, replay
from profiler_server.analysis.replay.reading import replay_rank
from profiler_server.analysis.replay.window import read_window
from tests.support.showing import show, sum_fields, sum_up
from tests.support.traces import CARRIED, HOST
from tests.support.varying import Forcing
from tests.support.window_cases import BYTES, FLOATS, POINTWISE, WINDOW_CASES
from tests.support.windows import Machine, Step, build_window, compute

LOADER = "enumerate(DataLoader)#_Iter.__next__"
PRODUCT: dict[str, Any] = {"Input Dims": [[64, 30], [30, 7]], "Input type": ["c10::Half"]}
BACKWARD = "autograd::engine::evaluate_function: AddmmBackward0"


def draw(seed: int) -> Step:
    """Return a step of drawn pieces, each with drawn sizes and lengths: the same in every part of every step."""
    pieces = random.Random(seed).sample(range(12), 4)

    def body(machine: Machine) -> None:
        chance = random.Random(seed)
        for piece in pieces:
            work(machine, piece, chance)
            machine.work(chance.choice((0.0, 5.0, 200.0)))

    return body


def work(machine: Machine, piece: int, chance: random.Random) -> None:
    count, long_us = chance.randint(1, 6), chance.choice((2.0, 30.0, 400.0))
    many: dict[int, Callable[[], None]] = {
        0: lambda: machine.run("aten::mm", long_us, **PRODUCT),
        1: lambda: machine.run("aten::add", long_us, 5.0, POINTWISE),
        2: lambda: machine.wait(chance.choice(("aten::item", "")), "cudaStreamSynchronize"),
        3: lambda: machine.copy("aten::to", long_us, 1 << chance.choice((9, 20)), blocking=True, **BYTES),
        4: lambda: machine.copy("aten::to", long_us, 1 << 22, kind="DtoH (Device -> Pageable)", **FLOATS),
        5: lambda: machine.reduce(long_us, 1 << chance.choice((12, 20, 24))),
        6: lambda: machine.call_driver(chance.choice(("cudaMalloc", "cudaFree")), 100.0, "aten::empty"),
        7: lambda: machine.mark(LOADER, lambda: machine.work(long_us)),
        8: lambda: machine.mark("Optimizer.step#SGD.step", lambda: update(machine, count)),
        9: lambda: machine.mark("Optimizer.step#SGD.step", lambda: compute(machine, 2)),
        10: lambda: machine.run(BACKWARD, long_us, 30.0),
        11: lambda: machine.run("aten::arange", 0.0, 100.0),
    }
    for _ in range(count):
        many[piece]()
    if piece == 5:
        machine.join()


def update(machine: Machine, count: int) -> None:
    for _ in range(20 * count):
        machine.run("aten::add_", 3.0, 10.0, POINTWISE)


def draw_uneven(seed: int) -> Step:
    """Return a step whose parts differ: other threads and streams, full queues, nested calls, times between any two."""
    chance = random.Random(1000 + seed)
    pieces = chance.sample(range(12), 5)

    def do_piece(machine: Machine) -> None:
        work(machine, chance.choice(pieces), chance)
        machine.work(chance.choice((0.0, chance.uniform(0.5, 90.0))))

    def body(machine: Machine) -> None:
        do_piece(machine)
        many: tuple[Callable[[], None], ...] = (
            lambda: hand_over(machine, do_piece, chance),
            lambda: run_aside(machine, do_piece, chance),
            lambda: nest_calls(machine, chance),
            lambda: fill_queue(machine, 700 if seed == 0 else 20),
            lambda: do_piece(machine),
        )
        for _ in range(chance.randint(1, 4)):
            chance.choice(many)()
        machine.events = [
            event for event in machine.events if chance.random() > 0.003 or event["cat"] == "user_annotation"
        ]

    return body


def hand_over(machine: Machine, body: Step, chance: random.Random) -> None:
    """Let another thread work while the first one pauses, as autograd's thread of a backward does."""
    first = len(machine.events)
    machine.work(chance.uniform(1.0, 60.0))
    body(machine)
    for event in machine.events[first:]:
        if (event["pid"], event["tid"]) == HOST and event["cat"] in ("cpu_op", "cuda_runtime"):
            event["tid"] = 101
    machine.work(chance.uniform(1.0, 60.0))


def run_aside(machine: Machine, body: Step, chance: random.Random) -> None:
    """Let the device work on another stream, of which the first one waits at times."""
    first, free_us = len(machine.events), machine.free_us
    machine.free_us = chance.choice((machine.now_us, free_us))
    body(machine)
    for event in machine.events[first:]:
        if event["cat"] in ("kernel", "gpu_memcpy") and event["args"]["stream"] == 7:
            event["tid"] = event["args"]["stream"] = 13
    machine.sent_us, machine.free_us = max(machine.sent_us, machine.free_us), free_us
    if chance.random() < 0.5:
        machine.join()


def nest_calls(machine: Machine, chance: random.Random) -> None:
    """Launch from a call inside of another call, as a runtime does that calls its driver."""
    begin = machine.now_us
    machine.run("aten::addmm", chance.uniform(2.0, 300.0), 10.0, HALF_KERNEL)
    launched = next(event for event in reversed(machine.events) if event["cat"] == "cuda_runtime")
    around = {**launched, "name": "cudaLaunchKernelExC", "args": {"correlation": 10**6 + len(machine.events)}}
    machine.events.append({**around, "ts": launched["ts"] - 1.0, "dur": launched["dur"] + 1.5})
    machine.mark("forward", lambda: machine.work(machine.now_us - begin))


def fill_queue(machine: Machine, count: int) -> None:
    for _ in range(count):
        machine.run("aten::relu_", 9.0, 1.0, POINTWISE)


HALF_KERNEL = "cutlass_80_tensorop_f16_s16816gemm"
DRAWN = {f"drawn {seed}": draw(seed) for seed in range(12)}
UNEVEN = {f"uneven {seed}": draw_uneven(seed) for seed in range(24)}
PLANTED = {f"planted {name}": case.planted for name, case in WINDOW_CASES.items()}


def tell(rank: RankRun) -> tuple[str, ...]:
    path = find_critical_path(rank)
    if path is None:
        return (show(replay_rank(rank)),)
    waits = show(dict(sorted(path.waits_ns.items())[:5]))
    return (
        show(replay_rank(rank)),
        f"path of {len(path.start_ns)}: {show(path.sum_kinds())} {show(path.examples)} {show(path.host_waits)} {waits}",
    )


def sum_edges(edges: Edges) -> str:
    return sum_up(np.array([(node, *entry) for node in sorted(edges) for entry in edges[node]], np.float64).ravel())


def measure(rank: RankRun) -> Iterator[str]:
    """Yield the sums of every figure of the graph and the path, and of replays with drawn changes."""
    window = read_window(rank)
    graph = build_graph(window) if window is not None else None
    path = find_critical_path(rank)
    if window is None or graph is None or path is None:
        return
    yield from map(sum_fields, (window, graph, graph.host, path))
    yield f"after {sum_edges(graph.after)}; awaits {sum_edges(graph.awaits)}; threads {window.threads}"
    for seed in range(4):
        changes = draw_changes(graph, np.random.default_rng(seed), 0.5 if seed < 2 else 0.05)
        begins, ends = replay(graph, changes)
        yield f"changed {sum_up(np.array(begins))} {sum_up(np.array(ends))} at most {bound_savings(graph, changes):.9g}"


def draw_changes(graph: Graph, chance: np.random.Generator, share: float) -> Changes:
    changes = Changes.none(graph)
    changes.host[chance.random(len(changes.host)) < share] = 0.4
    changes.device[chance.random(len(graph)) < share] = 0.7
    for flags in (changes.unwaited, changes.aside, changes.skipped, changes.joined):
        flags |= chance.random(len(graph)) < share / 4
    return changes


def list_real(folder: Path) -> Iterator[tuple[str, Run]]:
    for sample in sorted(CARRIED.glob("*.json.gz")):
        yield sample.name, import_trace(sample, folder / sample.name)


def list_built(bodies: dict[str, Step], folder: Path) -> Iterator[tuple[str, Run]]:
    for number, (title, body) in enumerate(bodies.items()):
        yield title, build_window(folder / str(number), body, steps=3)


WINDOWS: dict[str, Callable[[Path], Iterator[tuple[str, Run]]]] = {
    "drawn": partial(list_built, DRAWN),
    "uneven": partial(list_built, UNEVEN),
    "planted": partial(list_built, PLANTED),
    "real": list_real,
}


@pytest.mark.parametrize("name", WINDOWS)
def test_what_the_replay_finds_of_windows(name: str, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    lines: list[str] = []
    forcing = Forcing(most=3)
    for title, run in WINDOWS[name](tmp_path):
        rank = run.rank(run.ranks[0])
        forced = name in ("drawn", "planted")
        lines += [f"{title}:", *measure(rank), *([forcing.write(partial(tell, rank))] if forced else tell(rank))]
    golden(f"drawn/windows-{name}", "\n".join(lines) + "\n")
