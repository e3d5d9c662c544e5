"""Windows of what a host and a device may do, drawn by chance: all that their replay finds, and the critical path.

Small steps of each planted cause stand beside each other, so that a sighting that looks at too many rows shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profiler_server.analysis.replay.critical import find_critical_path
from profiler_server.analysis.replay.reading import replay_rank
from tests.support.showing import show
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


DRAWN = {f"drawn {seed}": draw(seed) for seed in range(12)}
PLANTED = {f"planted {name}": case.planted for name, case in WINDOW_CASES.items()}


@pytest.mark.parametrize(("name", "bodies"), [("drawn", DRAWN), ("planted", PLANTED)])
def test_what_the_replay_finds_of_windows(
    name: str, bodies: dict[str, Step], tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    lines: list[str] = []
    for number, (title, body) in enumerate(bodies.items()):
        rank = build_window(tmp_path / str(number), body, steps=3).rank()
        path = find_critical_path(rank)
        lines += [f"{title}:", show(replay_rank(rank))]
        if path is not None:
            lines += [f"path of {len(path.start_ns)}: {show(path.sum_kinds())} {show(path.examples)}"]
            columns = zip(path.kind, path.start_ns, path.slice_id, path.track, path.depth, strict=True)
            lines += [show([list(column) for column in list(columns)[5:50:9]])]
    golden(f"drawn/windows-{name}", "\n".join(lines) + "\n")
