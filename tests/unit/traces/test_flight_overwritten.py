"""Dumps that do not hold every call: overwritten ones, those of early versions of PyTorch, sends and receives."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from collector.traces import import_trace
from profiler_server.analysis.ranks.ends import Hang
from profiler_server.analysis.ranks.hang import find_hang
from profiler_server.diagnosis.end_sentences import describe_end
from tests.support.dumps import make_dump, make_entry


def explain(folder: Path, dumps: dict[int, Any]) -> Hang | None:
    (folder / "dumps").mkdir()
    for rank, dump in dumps.items():
        (folder / f"dumps/nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    run = import_trace(folder / "dumps", folder / "run")
    return find_hang(run)


def make_calls(first: int, last: int, ended: int) -> dict[str, Any]:
    """Return a dump that holds the calls from first to last, ended up to one of them."""
    calls = range(first, last + 1)
    states = ("completed" if call <= ended else "scheduled" for call in calls)
    return make_dump([make_entry(call, state, record_id=call - 1) for call, state in zip(calls, states, strict=True)])


def make_other_group(status: dict[str, Any]) -> dict[str, Any]:
    """Return a dump whose calls of the group of all ranks were overwritten by those of another group."""
    calls = [make_entry(n, process_group=("7", "tp"), pg_id=1, record_id=n) for n in range(100, 120)]
    return {**make_dump(calls), "pg_status": status}


def test_a_rank_whose_entry_was_overwritten_is_not_said_to_be_missing(tmp_path: Path) -> None:
    found = explain(
        tmp_path,
        {0: make_calls(1, 8, 4), 1: make_calls(1, 8, 4), 2: make_calls(6, 8, 4), 3: make_calls(1, 4, 4)},
    )
    assert found is not None
    assert (found.sequence, found.missing, found.waiting) == (5, (3,), (0, 1, 2))


def test_a_status_tells_how_far_a_rank_came_whose_calls_were_all_overwritten(tmp_path: Path) -> None:
    entered = {"0": {"last_enqueued_collective": 5, "last_started_collective": 5, "last_completed_collective": 4}}
    found = explain(
        tmp_path,
        {0: make_calls(1, 5, 4), 1: make_calls(1, 5, 4), 2: make_other_group(entered), 3: make_calls(1, 4, 4)},
    )
    assert found is not None
    assert (found.missing, found.waiting) == ((3,), (0, 1, 2))


def test_a_rank_of_which_nothing_is_known_is_not_blamed(tmp_path: Path) -> None:
    whole = make_calls(1, 5, 4)
    found = explain(tmp_path, {0: whole, 1: whole, 2: make_other_group({}), 3: whole})
    assert found is not None
    assert (found.cause, found.missing) == ("overwritten", (2,))
    assert describe_end(found).startswith(
        "3 ranks wait in collective 5 (nccl:all_reduce, 6.25 MiB) of group default_pg; "
    )
    assert "whether rank 2 entered it was overwritten" in describe_end(found)


def test_calls_that_were_overwritten_where_they_ended_do_not_hang(tmp_path: Path) -> None:
    unseen = make_calls(1, 8, 8)  # a rank that was not seen to leave call 3
    unseen["entries"][2].update(state="scheduled", retired=False)
    dumps = {rank: make_calls(6, 8, 8) for rank in (1, 2, 3)}
    assert explain(tmp_path, {0: unseen, **dumps}) is None


@pytest.mark.parametrize("lacks", ["pg_config", "collective_seq_id"])
def test_dumps_of_early_versions_are_read(tmp_path: Path, lacks: str) -> None:
    def make(last: int) -> dict[str, Any]:
        dump = make_calls(1, last, 1)
        if lacks == "pg_config":
            return {name: value for name, value in dump.items() if name not in ("pg_config", "pg_status")}
        for entry in dump["entries"]:
            entry["seq_id"] = entry.pop("collective_seq_id")
            del entry["p2p_seq_id"], entry["is_p2p"]
        return dump

    found = explain(tmp_path, {0: make(2), 1: make(2), 2: make(1), 3: make(2)})
    assert found is not None
    assert (found.cause, found.sequence, found.missing) == ("missing", 2, (2,))


def test_a_receive_that_does_not_end_is_told(tmp_path: Path) -> None:
    def wait(number: int, name: str, **more: Any) -> dict[str, Any]:
        return make_entry(number, "started", is_p2p=True, p2p_seq_id=number, profiling_name=name, **more)

    first, ended = wait(3, "nccl:recv 1<-0"), make_entry(1)
    found = explain(
        tmp_path,
        {
            0: make_dump([ended], "[0, 1, 2]"),
            1: make_dump([ended, first], "[0, 1, 2]"),
            2: make_dump([ended, wait(9, "nccl:recv 2<-1")], "[0, 1, 2]"),
        },
    )
    assert found is not None
    assert describe_end(found) == (
        "Rank 1 waits in nccl:recv 1<-0 (point-to-point call 3 of group default_pg, 6.25 MiB) at train.py:88 in step; "
        "rank 2 waits in another such call, begun later."
    )
    assert found.waiting == (1, 2)


@pytest.mark.parametrize(
    "own",
    [
        "/usr/lib/python3/dist-packages/torch/_ops.py",
        "/src/pytorch/torch/distributed/distributed_c10d.py",
        "/opt/stepscope/collector/signals/communication.py",
        "<frozen importlib._bootstrap>",
    ],
)
def test_the_place_is_the_script_s_own_line(tmp_path: Path, own: str) -> None:
    frames = [
        {"name": "all_reduce", "filename": own, "line": 10},
        {"name": "step", "filename": "/home/me/torch/collector/train.py", "line": 88},
    ]
    ended = make_dump([make_entry(1, frames=frames)], "[0, 1]")
    found = explain(tmp_path, {0: make_dump([make_entry(1), make_entry(2, "started")], "[0, 1]"), 1: ended})
    assert found is not None
    assert describe_end(found).endswith("The last that rank 1 entered is 1 (nccl:all_reduce) at train.py:88 in step.")
