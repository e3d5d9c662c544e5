"""Dumps of the Flight Recorder: why a job hangs is told, and no pickle is ever obeyed."""

from __future__ import annotations

import json
import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.format.run import Run
from collector.format.schema.errors import TraceError
from collector.hangs.flight_recorder import PickleError, read_plain_pickle
from collector.traces.importing import import_trace
from profiler_server.analysis.ranks.ends import Hang
from profiler_server.analysis.ranks.hang import find_hang
from profiler_server.diagnosis.end_sentences import describe_end
from profiler_server.diagnosis.judging import diagnose
from profiler_server.report.building import build_report
from profiler_server.report.text import render_text
from profiler_server.store.redaction import redact
from tests.support.commands import run_command
from tests.support.dumps import make_dump, make_entry
from tests.support.ranks import launch
from tests.support.ranks_page import show_ranks

RECORDED = """
import os, sys, time, torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
for _ in range(3):
    dist.all_reduce(torch.ones(1000))
if rank == 0:
    dist.all_reduce(torch.ones(1000), async_op=True)
time.sleep(0.5)
whole = _dump_fr_trace()
with open(f"{sys.argv[1]}/.writing_{rank}", "wb") as file:
    file.write(whole)
os.rename(file.name, f"{sys.argv[1]}/nccl_trace_rank_{rank}")
while not os.path.exists(f"{sys.argv[1]}/nccl_trace_rank_{1 - rank}"):
    time.sleep(0.02)
os._exit(0)
"""


def import_dumps(folder: Path, dumps: dict[int, dict[str, Any]], *, as_json: bool = False) -> Run:
    (folder / "dumps").mkdir()
    for rank, dump in dumps.items():
        path = folder / "dumps" / f"nccl_trace_rank_{rank}"
        path.write_bytes(json.dumps(dump).encode() if as_json else pickle.dumps(dump, protocol=2))
    return import_trace(folder / "dumps", folder / "run")


def must_hang(run: Run) -> Hang:
    found = find_hang(run)
    assert found is not None
    return found


def test_a_job_that_really_hangs_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "100")
    (tmp_path / "dumps").mkdir()
    launch(RECORDED, tmp_path / "dumps")
    found = must_hang(import_trace(tmp_path / "dumps", tmp_path / "run"))
    assert (found.cause, found.sequence, found.missing, found.waiting) == ("missing", 4, (1,), (0,))
    assert found.bytes == 4000
    assert describe_end(found).startswith(
        "Rank 1 never entered collective 4 (gloo:all_reduce, 3.91 KiB) of group default_pg;"
    )


@pytest.mark.parametrize("as_json", [False, True])
def test_the_rank_that_never_came_is_named_with_where_it_was(tmp_path: Path, as_json: bool) -> None:
    whole = [make_entry(n) for n in range(1, 12)]
    dumps = {rank: make_dump([*whole, make_entry(12, "started")]) for rank in (0, 1, 2)}
    run = import_dumps(tmp_path, {**dumps, 3: make_dump(whole)}, as_json=as_json)
    assert describe_end(must_hang(run)) == (
        "Rank 3 never entered collective 12 (nccl:all_reduce, 6.25 MiB) of group default_pg; 3 ranks wait in it. The last "
        "that rank 3 entered is 11 (nccl:all_reduce) at train.py:88 in step."
    )
    notice = show_ranks(run).notice
    assert notice is not None
    assert (notice.title, notice.reason) == ("The job hangs", describe_end(must_hang(run)))
    assert diagnose(run, 0).sentence == describe_end(must_hang(run))
    assert "train.py" not in describe_end(must_hang(redact(run)))
    report = build_report(run)
    assert report["hang"]["missing"] == [3]
    assert "Rank 3 never entered collective 12" in render_text(report, run)


def test_a_rank_without_a_dump_is_told_apart(tmp_path: Path) -> None:
    dumps = {rank: make_dump([make_entry(1), make_entry(2, "started")]) for rank in (0, 1, 2)}
    found = must_hang(import_dumps(tmp_path, dumps))
    assert (found.cause, found.missing) == ("no_dump", (3,))
    assert describe_end(found).startswith("Rank 3 left no dump; 3 ranks wait in collective 2")


def test_ranks_that_call_different_collectives_are_told(tmp_path: Path) -> None:
    dumps = {rank: make_dump([make_entry(7, "started")], "[0, 1, 2]") for rank in (0, 1)}
    other = make_dump([make_entry(7, "started", profiling_name="nccl:broadcast")], "[0, 1, 2]")
    found = must_hang(import_dumps(tmp_path, {**dumps, 2: other}))
    assert (found.cause, set(found.differing)) == ("mismatch", {2})
    assert describe_end(found).startswith(
        "Rank 2 called nccl:broadcast of [1024, 1600] Float where others called nccl:all_reduce"
    )


def test_shapes_that_differ_are_a_mismatch_but_not_where_pieces_may(tmp_path: Path) -> None:
    def make(name: str, rows: int) -> dict[str, Any]:
        return make_dump([make_entry(7, "started", profiling_name=name, input_sizes=[[rows]])], "[0, 1]")

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    reduced = must_hang(import_dumps(tmp_path / "a", {0: make("nccl:all_reduce", 4), 1: make("nccl:all_reduce", 8)}))
    gathered = must_hang(import_dumps(tmp_path / "b", {0: make("nccl:all_gather", 4), 1: make("nccl:all_gather", 8)}))
    assert (reduced.cause, gathered.cause) == ("mismatch", "network")


def test_a_collective_that_all_entered_blames_the_network(tmp_path: Path) -> None:
    dumps = {rank: make_dump([make_entry(5, "started")], "[0, 1]") for rank in (0, 1)}
    found = must_hang(import_dumps(tmp_path, dumps))
    assert describe_end(found).startswith("All 2 ranks entered collective 5")


def test_a_collective_that_one_rank_has_left_does_not_hold_the_others(tmp_path: Path) -> None:
    late = make_dump([make_entry(1), make_entry(2, "started"), make_entry(3, "started")], "[0, 1]")
    found = must_hang(import_dumps(tmp_path, {0: late, 1: make_dump([make_entry(1), make_entry(2)], "[0, 1]")}))
    assert (found.sequence, found.missing) == (3, (1,))


def test_a_job_whose_collectives_ended_does_not_hang(tmp_path: Path) -> None:
    run = import_dumps(tmp_path, {rank: make_dump([make_entry(1), make_entry(2)], "[0, 1]") for rank in (0, 1)})
    assert find_hang(run) is None
    assert build_report(run)["hang"] is None


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("echo obeyed",)


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_that_would_run_code_is_refused(
    tmp_path: Path, protocol: int, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"entries": [Evil()], "pg_config": {}}, protocol=protocol))
    with pytest.raises(TraceError, match=r"holds the opcode (GLOBAL|STACK_GLOBAL)"):
        import_trace(path, tmp_path / "run")
    assert "obeyed" not in capfd.readouterr().out


@given(st.binary(max_size=200), st.integers(0, 400))
def test_damaged_pickles_are_refused_or_read_but_never_raise_otherwise(noise: bytes, place: int) -> None:
    whole = pickle.dumps(make_dump([make_entry(1)]), protocol=2)
    for data in (whole[:place], whole[:place] + noise + whole[place + len(noise) :], b"\x80\x02" + noise):
        with suppress(PickleError):
            read_plain_pickle(data)


@pytest.mark.parametrize(
    ("dump", "told"),
    [
        ({"entries": [1], "pg_config": {}}, "entry 0 is not a mapping"),
        ({"entries": [{}], "pg_config": {}}, "entry 0 has no sequence number"),
        ({"entries": {}, "pg_config": {}}, "no list of entries"),
        ([1, 2], "no list of entries"),
    ],
)
def test_values_that_are_no_dump_are_named(tmp_path: Path, dump: Any, told: str) -> None:
    path = tmp_path / "rank_0.pkl"
    path.write_bytes(pickle.dumps(dump, protocol=2))
    with pytest.raises(TraceError, match=told):
        import_trace(path, tmp_path / "run")


def test_the_command_tells_why_the_job_hangs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dumps").mkdir()
    for rank, entries in ((0, [make_entry(1, "started")]), (1, [])):
        (tmp_path / "dumps" / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(make_dump(entries, "[0, 1]"), 2))
    assert run_command("import", tmp_path / "dumps", "--summary-base-dir", tmp_path / "runs") == 0
    assert (
        "Rank 1 never entered collective 1 (nccl:all_reduce, 6.25 MiB) of group default_pg; 1 rank waits"
        in capsys.readouterr().out
    )


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
