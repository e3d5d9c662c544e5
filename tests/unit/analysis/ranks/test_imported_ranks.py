"""Folders of traces of several ranks: matched by the numbers of the library, on clocks that are hours apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from collector.format.run import Run
from collector.traces.importing import import_trace
from profiler_server.analysis.ranks.collectives import match_ranks, summarize_collectives
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.ranks.stragglers import judge_ranks
from profiler_server.diagnosis.rank_sentences import describe_straggler
from profiler_server.facts.job import Slow
from tests.support.traces import Event, call, kernel, step, write_trace

HOUR_US = 3_600_000_000.0
STEPS, LENGTH_US, LATE_US = 12, 1_000.0, 150.0


def write_ranks(
    folder: Path, ranks: int = 4, slow: int = 2, apart_us: float = 0.0, world: int | None = None, late_start: int = 0
) -> Path:
    """Write traces of NCCL whose rank `slow` comes to each all-reduce LATE_US after the others."""
    folder.mkdir()
    for rank in range(ranks):
        events = [event for number in range(1, STEPS + 1) for event in _step(number, rank == slow)]
        if rank == slow:
            events = [event for event in events if event["args"].get("Seq", 1_000) >= 40 + late_start]
        for event in events:
            event["ts"] += rank * apart_us
        told = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world or ranks}}
        write_trace(folder / f"rank{rank}.json", events, told)
    return folder


def _step(number: int, is_slow: bool) -> Sequence[Event]:
    at = number * LENGTH_US
    late = LATE_US if is_slow else 0.0
    told = {"Collective name": "allreduce", "Process Group Name": "0", "Group size": 4, "Seq": 39 + number}
    told |= {"In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "Float"}
    return [
        step(number, at, LENGTH_US - 1),
        call(at + 10, 5, 10 * number),
        kernel("gemm_sm90", at + 20, 300 + late, 10 * number),
        call(at + 30, 5, 10 * number + 1),
        kernel("ncclDevKernel_AllReduce_Sum_f32", at + 330 + late, 250 - late, 10 * number + 1, 9, **told),
    ]


def judge(folder: Path) -> tuple[Run, str]:
    run = import_trace(folder, folder.parent / "run")
    return run, describe_straggler(judge_ranks(summarize_ranks(run)))


def test_a_rank_that_numbers_its_steps_otherwise_hides_no_cause(tmp_path: Path) -> None:
    folder = write_ranks(tmp_path / "traces")
    trace = folder / "rank3.json"
    trace.write_text(trace.read_text().replace("ProfilerStep#", "ProfilerStep#7"))
    _, sentence = judge(folder)
    assert sentence.startswith("Rank 2 holds 3 others up 150 µs a step")
    assert "was not seen" not in sentence


@pytest.mark.parametrize("apart_us", [0.0, 3 * HOUR_US])
def test_the_rank_that_comes_last_is_named_however_far_the_clocks_are_apart(tmp_path: Path, apart_us: float) -> None:
    run, sentence = judge(write_ranks(tmp_path / "traces", apart_us=apart_us))
    assert sentence.startswith("Rank 2 holds 3 others up 150 µs a step")
    ranks = summarize_ranks(run)
    assert match_ranks(ranks).clock == "aligned"
    rows = {row.rank: row for row in summarize_collectives(ranks)}
    assert rows[2].transfer_ns == rows[0].transfer_ns == STEPS * 100_000
    assert (rows[0].wait_ns, rows[2].wait_ns) == (STEPS * 150_000, 0)
    assert (rows[0].late, rows[2].late) == (0, STEPS)


def test_calls_are_matched_by_the_number_that_the_library_gave_them(tmp_path: Path) -> None:
    run, sentence = judge(write_ranks(tmp_path / "traces", late_start=3))
    assert run.table("collectives", 2)["index"].to_pylist()[0] == 43
    assert sentence.startswith("Rank 2 holds 3 others up 150 µs a step")


def test_a_world_that_is_larger_than_told_is_no_obstacle(tmp_path: Path) -> None:
    _, sentence = judge(write_ranks(tmp_path / "traces", world=2))
    assert sentence.startswith("Rank 2 holds 3 others up")


MESH_STEPS, LAYERS = 12, 4
LAYER_US, MESH_LATE_US, TRANSFER_US = 5000.0, 700.0, 200.0
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
    for number in range(1, MESH_STEPS + 1):
        begin = list(now)
        for _ in range(LAYERS):
            for rank in range(4):
                _run(
                    events[rank],
                    "gemm_sm90",
                    now[rank],
                    LAYER_US + MESH_LATE_US * (rank in late) + random.uniform(0, 20),
                )
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
    assert judged.gain_ns == pytest.approx(LAYERS * MESH_LATE_US * 1e3, rel=0.1)
    late_ns = judged.comparison.latest.late_frac * judged.comparison.step_ns
    assert late_ns == pytest.approx(LAYERS * MESH_LATE_US * 1e3, rel=0.1)


def test_groups_of_one_name_are_told_by_their_ranks(tmp_path: Path) -> None:
    matched = match_ranks(summarize_ranks(write_job(tmp_path / "traces", TENSOR, DATA, (3,))))
    assert {group for group, _ in matched.kinds} == {"1 [0, 1]", "1 [2, 3]", "2 [0, 2]", "2 [1, 3]"}
    assert set(np.bincount(matched.call).tolist()) == {2}
