"""Ranks of several process groups, as in tensor beside data parallelism: one late piece of work is counted once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from collector.format.run import Run
from collector.traces import import_trace
from profiler_server.analysis.ranks.collectives import match_ranks
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.ranks.stragglers import judge_ranks
from profiler_server.facts.job import Slow
from tests.support.traces import Event, call, kernel, step, write_trace

STEPS, LAYERS = 12, 4
LAYER_US, LATE_US, TRANSFER_US = 5000.0, 700.0, 200.0
Groups = Sequence[tuple[str, tuple[int, ...]]]
TENSOR: Groups = (("1", (0, 1)), ("1", (2, 3)))
"""Groups that one call made (`split_group`) have one name."""
DATA: Groups = (("2", (0, 2)), ("2", (1, 3)))
TWICE: Groups = (("0", (0, 1, 2, 3)), ("5", (0, 1, 2, 3)))


def write_job(folder: Path, layer: Groups, end: Groups, late: tuple[int, ...]) -> Run:
    """Write a job of four ranks that meet in some groups after each layer, and in others when a step ends."""
    folder.mkdir()
    now, events = [0.0] * 4, [list[Event]() for _ in range(4)]
    random = np.random.default_rng(0)
    for number in range(1, STEPS + 1):
        begin = list(now)
        for _ in range(LAYERS):
            for rank in range(4):
                _run(events[rank], "gemm_sm90", now[rank], LAYER_US + LATE_US * (rank in late) + random.uniform(0, 20))
                now[rank] = events[rank][-1]["ts"] - 1_000_000 + events[rank][-1]["dur"]
            _meet(events, now, layer)
        _meet(events, now, end)
        for rank in range(4):
            events[rank].append(step(number, begin[rank], now[rank] - begin[rank]))
    for rank in range(4):
        told = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4}}
        write_trace(folder / f"rank{rank}.json", events[rank], told)
    return import_trace(folder, folder.parent / "run")


def _run(events: list[Event], name: str, at_us: float, length_us: float, **args: object) -> None:
    link = len(events) + 1
    events += [call(at_us, 1, link), kernel(name, at_us + 2, length_us - 2, link, 7, **args)]


def _meet(events: list[list[Event]], now: list[float], groups: Groups) -> None:
    for name, ranks in groups:
        end = max(now[rank] for rank in ranks) + TRANSFER_US
        told: dict[str, object] = {"Collective name": "allreduce", "Process Group Name": name}
        told |= {
            "Process Group Ranks": str([*ranks]),
            "Group size": len(ranks),
            "In msg nelems": 1024,
            "Out msg nelems": 1024,
            "dtype": "Float",
        }
        for rank in ranks:
            _run(events[rank], "ncclDevKernel_AllReduce_Sum_f32", now[rank], end - now[rank], **told)
            now[rank] = end


@pytest.mark.parametrize(("layer", "end"), [(TENSOR, DATA), (TWICE[:1], TWICE[1:])])
def test_a_late_rank_of_two_groups_is_late_once(tmp_path: Path, layer: Groups, end: Groups) -> None:
    judged = judge_ranks(summarize_ranks(write_job(tmp_path / "traces", layer, end, (3,))))
    assert isinstance(judged, Slow)
    assert judged.culprits == (3,)
    assert judged.gain_ns == pytest.approx(LAYERS * LATE_US * 1e3, rel=0.1)
    late_ns = judged.comparison.latest.late_frac * judged.comparison.step_ns
    assert late_ns == pytest.approx(LAYERS * LATE_US * 1e3, rel=0.1)


def test_groups_of_one_name_are_told_by_their_ranks(tmp_path: Path) -> None:
    matched = match_ranks(summarize_ranks(write_job(tmp_path / "traces", TENSOR, DATA, (3,))))
    assert {group for group, _ in matched.kinds} == {"1 [0, 1]", "1 [2, 3]", "2 [0, 2]", "2 [1, 3]"}
    assert set(np.bincount(matched.call).tolist()) == {2}
