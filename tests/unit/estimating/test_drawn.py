"""Loops and batches drawn by chance: what is simulated, which workers are chosen, and what an estimate says."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import collector
from collector.estimating.estimation import count_bytes
from collector.estimating.model import Job, LoopModel, Measured, Receive, Sharing
from collector.estimating.simulation import bound_workers, find_workers, simulate
from tests.support.showing import show


def draw_loop(chance: random.Random) -> LoopModel:
    def jobs(most: int, shares: tuple[float, ...]) -> tuple[Job, ...]:
        lengths = (chance.randint(0, most) * 10.0 for _ in range(chance.randint(1, 4)))
        return tuple(Job(length or 1.0, chance.choice(shares)) for length in lengths)

    return LoopModel(
        batches=jobs(30, (0.0, 0.5, 1.0, 2.0)),
        steps=jobs(10, (0.0, 0.5, 1.0, 1.5)),
        workers=chance.randint(0, 5),
        prefetch=chance.randint(1, 3),
        in_order=chance.random() < 0.6,
        cores=chance.choice((1.0, 2.0, 3.5, 1000.0)),
        others=chance.choice((0.0, 0.0, 0.5, 2.5)),
        extra_ns=chance.choice((0.0, 7.0)),
        receive=chance.choice((Receive(), Receive(5.0, 3.0), Receive(20.0, 0.0, 2.0))),
        sharing=chance.choice((Sharing(), Sharing(0.3), Sharing(0.1, 0.5))),
        left=chance.choice((1.0, 0.5)),
    )


def test_what_is_simulated_of_drawn_loops(golden: Callable[[str, str], None]) -> None:
    lines = []
    for seed in range(60):
        chance = random.Random(seed)
        model = draw_loop(chance)
        found = simulate(model, chance.choice((1, 2, 3, 30, 40)))
        lines.append(f"{show(found.step_ns)} {show(found.wait_ns)} {show(found.steps_ns[:4])} {find_workers(model, 8)}")
    golden("drawn/loops", "\n".join(lines) + "\n")


@pytest.mark.parametrize("cores", [0.5, 1.0, 2.0, 7.0, 64.0])
def test_as_many_workers_are_proposed_as_the_cores_feed(cores: float) -> None:
    """From 1 on, three quarters of a worker count as one; who waits is bound by what a host bears."""
    assert [bound_workers(cores, frac) for frac in (1.0, 0.5)] == [max(1, int(cores * more + 0.25)) for more in (1, 2)]
    assert bound_workers(cores, 0.0) == bound_workers(cores, 0.01) <= 32 or cores > 7.0


def test_what_an_estimate_says_of_drawn_batches(golden: Callable[[str, str], None]) -> None:
    chance, lines = random.Random(7), []
    for _ in range(15):
        given: dict[str, Any] = {
            "step_ns": chance.choice((0, 1_000_000, 40_000_000)),
            "batch_ns": chance.choice((1_000, 4_000_000, 40_000_000, 160_000_000)),
            "batch_cpu_frac": chance.choice((0.0, 0.2, 1.0, 2.0)),
            "batch_bytes": chance.choice((0, 900, 1 << 20, 100 << 20)),
            "free_bytes": chance.choice((1 << 20, 1 << 30)),
            "cores": chance.choice((1.0, 4.0, 16.0)),
        }
        more = {"batch_size": 3, "num_workers": 2, "prefetch_factor": 3, "max_memory_util": 0.5}
        given |= {name: value for name, value in more.items() if chance.random() < 0.2}
        lines.append(str(collector.estimate((), quiet=True, **given)))
    golden("drawn/estimates", "\n".join(lines) + "\n")


def test_batches_without_a_time_are_no_work_and_none_computes_on_more_than_one_core() -> None:
    measured = Measured(8, (100, 0, 50), (50, 0, 80), (100, 0, 0), (50, 0, 0), 1)
    assert measured.jobs == (Job(200, 0.5), Job(50, 1.0))


def test_the_bytes_of_a_batch_are_those_of_what_it_holds_some_levels_deep() -> None:
    assert count_bytes({"a": b"12", "b": ["345", (bytearray(6),)]}) == 11
    assert count_bytes([[[[b"12"]]]]) == 2
    assert count_bytes([[[[[b"12"]]]]]) == 0
