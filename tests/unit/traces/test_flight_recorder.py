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
from collector.traces import import_trace
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
