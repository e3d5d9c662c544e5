"""Thresholds on collectives of several ranks: whether the ranks were in them together, on one clock, and which are slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from collector.format.intervals import Ints
from profiler_server.analysis.ranks.calls import Calls
from profiler_server.analysis.ranks.clocks import align_clocks
from profiler_server.analysis.ranks.collectives import find_slowest
from profiler_server.analysis.ranks.matching import Matched, match_calls
from profiler_server.analysis.ranks.one_clock import align_ranks
from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.diagnosis.rank_sentences import describe_slowest_collective
from profiler_server.facts.ranks import CollectiveRow
from tests.support.runs import MS
from tests.unit.diagnosis.edges.base import Edge

SHORT_NS = MS // 10


def call(end_ns: Ints, length_ns: int | Ints = SHORT_NS, held_ns: int = -1, each: int = 1) -> Calls:
    """Return calls of one rank, so many in each step."""
    every = np.ones(len(end_ns), np.int64)
    step, number = np.arange(len(end_ns)) // each + 1, np.arange(len(end_ns)) % each
    length, held = length_ns * every, held_ns * every
    return Calls(
        (("", "allreduce"),), 0 * every, step, step, number, end_ns - length, length, held, 4096 * every, 2 * every
    )


def match(*ends_ns: Ints, one_clock: bool = False, length_ns: int = SHORT_NS, held_ns: int = -1) -> Matched:
    calls = {rank: call(own, length_ns, held_ns) for rank, own in enumerate(ends_ns)}
    return match_calls(calls, one_clock)


def tick(count: int, every_ms: float = 100.0) -> Ints:
    found: Ints = (np.arange(count) * every_ms * MS).astype(np.int64) + 1000 * MS
    return found


def sway(count: int, by_ns: float) -> Ints:
    """Return times that lie before and behind by turns."""
    return np.round(np.where(np.arange(count) % 2, by_ns, -by_ns)).astype(np.int64)


def part(ends_ns: Sequence[Ints], length_ns: int = SHORT_NS, bytes_of_last: Ints | None = None) -> str:
    """Say by what some ranks are strangers, "" for none."""
    calls = {rank: call(own, length_ns) for rank, own in enumerate(ends_ns)}
    if bytes_of_last is not None:
        calls[len(calls) - 1] = replace(calls[len(calls) - 1], bytes=bytes_of_last)
    found = match_calls(calls, one_clock=False).strangers
    return found.by if found is not None else ""


def miss(share: float, by_ns: float, count: int) -> bool:
    """Let one of two ranks come later to this share of the calls, by so much when the other has left."""
    often = np.arange(count) * share % 1.0 < share
    return part([tick(count), tick(count) + np.where(often, round(by_ns) + SHORT_NS, 0)]) == "times"


def leave_apart(ratio: float) -> bool:
    """Let two ranks leave that much further from two others than either pair leaves apart."""
    near, far = sway(12, 0.5 * MS), sway(12, ratio * 0.5 * MS)
    own = np.roll(np.repeat(sway(6, 0.5 * MS), 2), 1)
    times = tick(12)
    return part([times, times + near, times + far, times + far + own], 90 * MS) == "times"


def drift(by: float) -> bool:
    """Say whether two ranks whose clocks drift so are not aligned."""
    ends = (tick(40), np.round(tick(40) / (1 - by)).astype(np.int64))
    ranks = [
        RankSummary(rank, f"host{rank}", "complete", 40, 1.0, 1.0, 0.0, {}, calls=call(own))
        for rank, own in enumerate(ends)
    ]
    return align_ranks(ranks)[1].known == "unknown"


def last_longer(length_ms: float, by_ms: float) -> bool:
    """Let one of two ranks need longer for the same calls."""
    times = tick(5, length_ms / 4)
    return bool(match(times, times + np.round(np.linspace(0, by_ms, 5) * MS).astype(np.int64)).apart_ns)


def be_slow(*lengths_ms: float, residual_ms: float = 0.0) -> bool:
    """Let the calls of each step take so long on both of two ranks, and say whether one of them is slow."""
    lengths = np.tile(np.round(np.array(lengths_ms) * MS).astype(np.int64), 5)
    ends = np.cumsum(lengths + 100 * MS)
    each = len(lengths_ms)
    found = match_calls({rank: call(ends, lengths, each=each) for rank in range(2)}, one_clock=True)
    return find_slowest(replace(found, clock_residual_ns=residual_ms * MS), 100.0 * MS) is not None


def pair_up(share: float) -> bool:
    row = CollectiveRow(0, "allreduce", 1000, int(1000 * share), 10, 5, 5, 0, None, None, None)
    return "waiting for another rank" in describe_slowest_collective([row])


def cut_short(calls: int) -> bool:
    """Say whether a rank that has so many of 100 calls is set beside the others."""
    return len(match(tick(100), tick(100), tick(calls)).meetings[0].rows) == 3


EDGES: Mapping[str, Edge] = {
    "TOGETHER_NS": Edge(1e6, lambda x: match(tick(8), tick(8) + sway(8, 2 * x)).clock == "unknown"),
    "LEAST_CALLS": Edge(3, lambda x: align_clocks(np.stack([tick(int(x))] * 2)) is not None),
    "ENOUGH_CALLS": Edge(20, lambda x: cut_short(int(x))),
    "ALIGNED_FRAC": Edge(
        0.1, lambda x: match(tick(8), tick(8) + 20 * MS + sway(8, 20 * x * MS), one_clock=True).clock == "one"
    ),
    "MOST_DRIFT": Edge(0.01, drift),
    "LEAST_HELD_NS": Edge(20_000, lambda x: bool(match(tick(5), tick(5), length_ns=MS, held_ns=round(x)).meetings)),
    "AT_ONCE_FRAC": Edge(
        0.95, lambda x: bool(match(tick(5), tick(5), length_ns=round(10_000 / x), held_ns=10_000).meetings)
    ),
    "APART_FRAC": Edge(0.05, lambda x: last_longer(10_000.0, 10_000.0 * x / (1 - x / 2))),
    "APART_NS": Edge(1e7, lambda x: last_longer(40.0, x / MS)),
    "MISSED_FRAC": Edge(0.25, lambda x: miss(x, 5.0 * MS, 10_000)),
    "FAR_RATIO": Edge(10.0, leave_apart),
    "SLOW_RATIO": Edge(2.0, lambda x: be_slow(10.0, 10.0, 10.0 * x)),
    "LEAST_OTHERS": Edge(2, lambda x: be_slow(*[10.0] * int(x), 40.0)),
    "SURE_RESIDUALS": Edge(4.0, lambda x: be_slow(10.0, 10.0, 10.0 + 10.0 * x, residual_ms=10.0)),
    "LEAST_MATCHED_FRAC": Edge(0.9, pair_up),
}
ALSO: tuple[tuple[str, Callable[[float], bool]], ...] = (
    ("TOGETHER_NS", lambda x: match(tick(8), tick(8) + round(2 * x), one_clock=True).clock == "aligned"),
    ("TOGETHER_NS", lambda x: miss(0.4, x, 12)),
    ("LEAST_CALLS", lambda x: bool(match(tick(int(x)), tick(int(x), 200.0)).apart_ns)),
    ("ENOUGH_CALLS", lambda x: bool(align_clocks(np.stack([tick(int(x)), tick(int(x), 101.0)])).drift[1])),  # type: ignore[union-attr]
    ("LEAST_MEETINGS", lambda x: part([tick(int(x))] * 2, bytes_of_last=np.full(int(x), 1)) == "bytes"),
    ("MOST_FRAC", lambda x: part([tick(2000)] * 2, bytes_of_last=np.where(np.arange(2000) < 2000 * x, 1, 4096)) != ""),
    ("LEAST_GAIN_FRAC", lambda x: be_slow(0.1, 0.1, 0.1 + 100.0 * x)),
)
"""Other decisions that the same threshold takes."""
