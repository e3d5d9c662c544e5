"""Jobs with one planted cause each, weak and strong, beside jobs of chance alone: all that is found of their ranks.

What is expected lies in tests/golden/words/drawn: the verdict with all of its figures, and the collectives as they are
summed and matched.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from collector.format.intervals import Floats
from collector.format.phases import COMMUNICATION, PHASE_NAMES
from profiler_server.analysis.ranks.calls import Calls
from profiler_server.analysis.ranks.collectives import find_slow_call, match_ranks, summarize_collectives
from profiler_server.analysis.ranks.grids import grid_steps
from profiler_server.analysis.ranks.one_clock import align_ranks, choose_example
from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.analysis.ranks.stragglers import judge_ranks, measure_own, measure_waits
from profiler_server.analysis.ranks.together import RankSteps, Track, find_size
from tests.support.runs import MS
from tests.support.showing import show, sum_fields
from tests.support.varying import Forcing

CAUSES = (
    "nothing",
    "slow",
    "from a step on",
    "up to a step",
    "hands over",
    "rare",
    "pause",
    "turns",
    "uneven",
    "garbage",
)
TRANSFER_MS = 2.0


class Drawn:
    """A job of ranks that meet once in each step: `parts_ms` (phases, ranks, steps) with a cause of a drawn strength."""

    def __init__(self, cause: str, seed: int) -> None:
        self.random = random.Random(f"{cause} {seed}")
        self.cause = cause
        self.ranks = self.random.choice((2, 3, 4, 8))
        self.steps = self.random.choice((9, 10, 20, 21, 40, 60))
        self.step = np.arange(1, self.steps + 1)
        self.parts_ms = np.zeros((len(PHASE_NAMES), self.ranks, self.steps))
        self.collecting_ms, self.between_ms = (np.zeros((self.ranks, self.steps)) for _ in range(2))
        self.pair_bytes = self.random.choice((-1, 1 << 20))
        self.pair_ms = self.random.choice((1, 1, 20))
        wide = self.random.choice((0, 1, 1, 4))
        for name, usual_ms in (("data_wait", 4), ("forward", 30), ("backward", 50), ("optimizer", 6)):
            self.add(name, [[usual_ms + self.random.randint(0, wide) for _ in self.step] for _ in range(self.ranks)])
        self.plant(self.random.choice((2, 3, 8, 20, 60)), self.random.randrange(self.ranks))
        own = self.parts_ms.sum(axis=0) + self.between_ms
        self.parts_ms[COMMUNICATION] = own.max(axis=0) - own + TRANSFER_MS
        if self.random.random() < 0.1:
            self.parts_ms[COMMUNICATION] = 0.0

    def add(self, phase: str, more_ms: Sequence[Sequence[float]] | Floats) -> None:
        self.parts_ms[PHASE_NAMES.index(phase)] += more_ms

    def plant(self, late_ms: float, culprit: int) -> None:
        later = np.zeros((self.ranks, self.steps))
        middle = self.random.randint(3, self.steps - 3)
        cells = {
            "slow": (culprit, slice(None)),
            "from a step on": (culprit, slice(middle, None)),
            "up to a step": (culprit, slice(None, middle)),
            "rare": (culprit, slice(0, None, self.random.choice((4, 9)))),
        }
        if self.cause in cells:
            later[cells[self.cause]] = late_ms
        elif self.cause == "hands over":
            later[culprit, :middle] = later[culprit - 1, middle:] = late_ms
        elif self.cause == "pause":
            later[culprit, middle : middle + self.random.choice((1, 2))] = 50 * late_ms
        elif self.cause in ("turns", "garbage"):
            for step in range(self.steps):
                later[self.random.randrange(self.ranks), step] = late_ms
        elif self.cause == "uneven":
            length = np.array([[self.random.randint(0, 10) for _ in self.step] for _ in range(self.ranks)])
            self.add("backward", length * late_ms / 5)
            later = length * late_ms / 10
        place = "forward" if self.cause == "uneven" else self.random.choice(("h2d", "forward", "data_wait", "between"))
        if place == "between":
            self.between_ms += later
        else:
            self.add(place, later)
        if self.cause == "garbage":
            self.collecting_ms += later

    def summarize(self) -> tuple[RankSummary, ...]:
        counted = self.random.random() < 0.5
        return tuple(self.summarize_rank(rank, counted) for rank in range(self.ranks))

    def summarize_rank(self, rank: int, counted: bool) -> RankSummary:
        parts = self.parts_ms[:, rank] * MS
        between = self.between_ms[rank] * MS
        own = parts.sum(axis=0) + between - parts[COMMUNICATION]
        meeting = own + parts[COMMUNICATION] if self.random.random() < 0.9 else np.full(self.steps, np.nan)
        columns = (parts, self.collecting_ms[rank] * MS, between, meeting)
        return RankSummary(
            rank=rank,
            host=f"host{rank // 2}",
            state="complete",
            steps=self.steps,
            step_ns=float((own + parts[COMMUNICATION]).mean()),
            own_ns=float(own.mean()),
            noise_ns=float(own.std() / np.sqrt(self.steps)),
            phases_ns={name: float(part.mean()) for name, part in zip(PHASE_NAMES, parts, strict=True)},
            starved_frac=self.random.choice((0.0, 0.0, 0.05)),
            together=RankSteps(self.step, *(column.astype(np.float32) for column in columns)),
            unusual=np.array([2]) if self.random.random() < 0.2 else self.step[:0],
            calls=self.list_calls(rank, own, parts[COMMUNICATION]) if counted else None,
        )

    def list_calls(self, rank: int, own: Floats, held: Floats) -> Calls:
        """Return a meeting of all ranks at the end of each step, and one of each pair of ranks before it."""
        ends = np.cumsum(own + held) + rank // 2 * 3_600e9
        begins = ends - held
        pairs = begins - own / 3 + [[0], [self.random.randint(0, 2) * MS]]
        start = np.stack([pairs[0], begins], axis=1).ravel()
        length = np.stack([pairs[1] - pairs[0] + self.pair_ms * MS, held], axis=1).ravel()
        step, two = np.repeat(self.step, 2), np.tile([0, 1], self.steps)
        kinds = ((f"pair {rank // 2}", "allgather"), ("all", "allreduce"))
        size = np.where(two == 0, self.pair_bytes, np.where(step % 7 == 0, 50 << 20, 25 << 20))
        members = np.where(two == 0, 2, self.ranks)
        kept = np.array([self.random.random() < 0.97 for _ in two])
        columns = (
            two,
            step,
            step,
            0 * step,
            start.astype(np.int64),
            length.astype(np.int64),
            0 * step - 1,
            size,
            members,
        )
        return Calls(kinds, *(column[kept] for column in columns))


def tell(ranks: tuple[RankSummary, ...]) -> tuple[str, ...]:
    waits = measure_waits(ranks)
    lines = [show(judge_ranks(ranks)), f"own {show(measure_own(ranks))}"]
    if waits is not None:
        lines.append(f"waits of {show(waits[0])} in {len(waits[1])} steps: {show(waits[2].sum(axis=1))}")
    if ranks[0].calls is not None:
        lines += [show(row) for row in summarize_collectives(ranks) if row.rank in (0, len(ranks) - 1)]
        lines += [show(find_slow_call(ranks)), show(choose_example(ranks))]
        lines += [show([replace(clock) for clock in align_ranks(ranks)])]
    return tuple(lines)


@pytest.mark.parametrize("cause", CAUSES)
def test_what_is_found_of_the_ranks_of_drawn_jobs(cause: str, golden: Callable[[str, str], None]) -> None:
    lines: list[str] = []
    forcing = Forcing(most=1)
    for seed in range(12):
        job = Drawn(cause, seed)
        ranks = job.summarize()
        told = forcing.write(partial(tell, ranks))
        lines += [f"{cause} {seed}: {job.ranks} ranks, {job.steps} steps", *measure_calls(ranks), told]
    golden(f"drawn/ranks-{cause.replace(' ', '-')}", "\n".join(lines) + "\n")


def measure_calls(ranks: tuple[RankSummary, ...]) -> tuple[str, ...]:
    """Return the sums of every figure of the calls as they are matched."""
    if ranks[0].calls is None:
        return ()
    matched = match_ranks(ranks)
    return (
        f"{matched.kinds} {matched.clock} {matched.clock_residual_ns:.6g} {show(matched.apart_ns)} {matched.strangers}",
        sum_fields(matched),
        *map(sum_fields, matched.meetings),
    )


FIGURES = ("own", "step", "sample", "data_wait", "backward")


def draw_track(chance: np.random.Generator, most: int) -> Track:
    """Return steps in as many stretches as the server keeps; some are not there."""
    first = int(chance.integers(0, 50))
    size = find_size(first, first + most, 64)
    stretch = np.arange(first // size, (first + most) // size + 1)
    stretch = stretch[chance.random(len(stretch)) < 0.9]
    parts = chance.integers(0, 10**9, (len(PHASE_NAMES), len(stretch))).astype(np.float64)
    return Track(size, stretch, chance.integers(1, size + 1, len(stretch)), parts, chance.integers(0, 65, len(stretch)))


def test_what_maps_show_of_drawn_ranks(golden: Callable[[str, str], None]) -> None:
    lines = []
    for seed in range(8):
        chance = np.random.default_rng(seed)
        tracks = {rank: draw_track(chance, int(chance.choice((1, 30, 300, 5000)))) for rank in range(1, 4)}
        for figure in FIGURES:
            for columns in (1, 7, 64):
                found = grid_steps(tracks, figure, columns)
                lines.append(f"{seed} {figure} {found.ranks} {found.size} {found.values.shape} {sum_fields(found)}")
    golden("drawn/ranks-maps", "\n".join(lines) + "\n")
