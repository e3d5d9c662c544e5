"""Ranks of one launch that come to the same place at the same moment."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.synchronize import Barrier
from pathlib import Path

from collector.format.schema.layout import find_ranks, profiler_path, run_file
from collector.session.place import Launch, claim_place

RANKS, ROUNDS = 4, 60


def claim_all(rank: int, base: Path, barrier: Barrier) -> None:
    for number in range(ROUNDS):
        barrier.wait(60)
        claim_place(base / str(number), Launch(rank, RANKS, "launch", None, None, {}))


def test_ranks_that_come_at_once_share_the_run(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(RANKS)
    ranks = [context.Process(target=claim_all, args=(rank, tmp_path, barrier)) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
    assert [process.exitcode for process in ranks] == [0] * RANKS
    found = {find_ranks(tmp_path / str(number)) for number in range(ROUNDS)}
    assert found == {tuple(range(RANKS))}


def test_a_pipe_where_the_manifest_goes_holds_nobody_up(tmp_path: Path) -> None:
    profiler_path(tmp_path).mkdir()
    os.mkfifo(run_file(tmp_path))
    assert claim_place(tmp_path, Launch(0, 1, "", None, None, {})).rank == 0
    assert run_file(tmp_path).is_file()
