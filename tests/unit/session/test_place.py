"""Ranks of one launch that come to the same place at the same moment."""

from __future__ import annotations

import multiprocessing
from multiprocessing.synchronize import Barrier
from pathlib import Path

from collector.format.schema.layout import find_ranks
from collector.session.place import Launch, claim_place

RANKS, ROUNDS = 4, 60


def claim_all(rank: int, base: Path, barrier: Barrier) -> None:
    for number in range(ROUNDS):
        barrier.wait(30)
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
