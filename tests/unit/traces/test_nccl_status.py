"""A status of NCCL's RAS: which ranks are behind, silent or failed is told, and no file makes more than a clear error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.format.run import Run
from collector.format.schema.errors import TraceError
from collector.hangs.nccl_ras import StatusError, number_processes, read_status
from collector.traces.importing import import_trace
from profiler_server.analysis.ranks.ends import Hang
from profiler_server.analysis.ranks.hang import find_hang
from profiler_server.diagnosis.end_sentences import describe_end
from profiler_server.diagnosis.judging import diagnose
from profiler_server.report.building import build_report
from profiler_server.store.redaction import redact
from tests.support.ranks_page import show_ranks
from tests.support.status import make_communicator, make_missing, make_rank, make_status


def import_status(folder: Path, status: Any) -> Run:
    path = folder / "ras.json"
    path.write_text(status if isinstance(status, str) else json.dumps(status, indent=2), encoding="utf-8")
    return import_trace(path, folder / "run")


def must_hold(run: Run) -> Hang:
    found = find_hang(run)
    assert found is not None
    return found


def test_the_ranks_that_are_behind_are_named_with_what_they_launched(tmp_path: Path) -> None:
    ranks = [make_rank(rank, 811 if rank in (3, 5) else 812) for rank in range(8)]
    run = import_status(tmp_path, make_status(make_communicator(ranks)))
    found = must_hold(run)
    assert (found.cause, found.name, found.sequence, found.missing) == ("behind", "AllReduce", 812, (3, 5))
    assert describe_end(found) == (
        "Communicator 0xae94423cfbb2ef4a: ranks 3, 5 have launched 811 AllReduce, the 6 others 812. Ask ncclras again: if "
        "the counts are the same then, the job hangs."
    )
    notice = show_ranks(run).notice
    assert notice is not None
    assert (notice.title, notice.reason) == ("Ranks of a communicator are apart", describe_end(found))
    assert diagnose(run, 0).sentence == describe_end(found)
    assert build_report(run)["hang"]["missing"] == [3, 5]
    assert run.manifest.world_size == 8


def test_a_rank_that_does_not_answer_is_said_before_ranks_that_are_behind(tmp_path: Path) -> None:
    uneven = make_communicator([make_rank(0, 5), make_rank(1, 6)], name="0x1")
    silent = make_communicator([make_rank(rank) for rank in range(3)], make_missing(3), name="0x2")
    run = import_status(tmp_path, make_status(uneven, silent))
    assert describe_end(must_hold(run)) == (
        "Communicator 0x2: rank 3 does not answer (process 483075 on 172.16.64.210, GPU 3); 3 of 4 ranks answer. 1 more "
        "communicator is held or uneven, too."
    )
    assert must_hold(run).title == "The job hangs"
    assert "172.16" not in describe_end(must_hold(redact(run)))


def test_dead_and_failed_ranks_are_told(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    dead = make_communicator(
        [make_rank(0)], make_missing(1, considered_dead=True), make_missing(2, considered_dead=True)
    )
    failed = make_communicator([make_rank(0), make_rank(1, async_error=2)])
    assert "ranks 1, 2 are considered dead" in describe_end(must_hold(import_status(tmp_path / "a", make_status(dead))))
    assert "rank 1 failed (system error)" in describe_end(must_hold(import_status(tmp_path / "b", make_status(failed))))


def test_a_job_that_gets_on_is_said_to(tmp_path: Path) -> None:
    halves = [make_communicator([make_rank(0, 4, a), make_rank(1, 4, b)], name=f"0x{a}") for a, b in ((0, 1), (2, 3))]
    whole = make_communicator([make_rank(rank) for rank in range(4)])
    run = import_status(tmp_path, make_status(*halves, whole))
    assert find_hang(run) is None
    assert run.ranks == (0, 1, 2, 3)
    sentence = "NCCL's status names 3 communicators of 4 ranks: all of them answer, and none is behind the others."
    notice = show_ranks(run).notice
    assert notice is not None
    assert notice.reason == diagnose(run, 0).sentence == sentence


def test_ranks_are_those_of_the_communicator_of_all_or_in_order() -> None:
    turned = make_communicator([make_rank(rank, process=3 - rank) for rank in range(4)])
    halves = [make_communicator([make_rank(0, 4, a), make_rank(1, 4, b)], name=f"0x{a}") for a, b in ((2, 3), (0, 1))]
    whole = read_status(make_status(*halves, turned))
    assert {process[1] - 483_072: rank for process, rank in number_processes(whole).items()} == {3: 0, 2: 1, 1: 2, 0: 3}
    apart = read_status(make_status(*halves))
    assert sorted(number_processes(apart).values()) == [0, 1, 2, 3]


def test_processes_that_ras_does_not_know_are_ranks_all_the_same(tmp_path: Path) -> None:
    unknown = [{**make_rank(rank), "host": "unknown", "pid": -1} for rank in range(3)]
    run = import_status(tmp_path, make_status(make_communicator(unknown)))
    assert run.ranks == (0, 1, 2)


def test_communicators_of_the_same_hash_stay_apart() -> None:
    twice = read_status(make_status(make_communicator([make_rank(0)]), make_communicator([make_rank(1)])))
    assert len({communicator.name for communicator in twice.communicators}) == 2


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda status: status["communicators"].append(7), "communicator 1 is not a mapping"),
        (lambda status: status["communicators"][0].pop("hash"), "communicator 0 has no hash"),
        (lambda status: status["communicators"][0].update(ranks={}), "ranks of communicator 0 is no list"),
        (
            lambda status: status["communicators"][0]["ranks"].append(None),
            "entry 2 in ranks of communicator 0 has no rank",
        ),
        (lambda status: status["communicators"][0]["ranks"][0].update(rank=-1), "entry 0 in ranks of communicator 0"),
        (lambda status: status["communicators"][0]["ranks"][0].update(rank=1), "communicator 0 names a rank twice"),
        (lambda status: status.update(communicators={}), "no nccl_version with a list of communicators"),
        (lambda status: status.update(communicators=[]), "names no rank"),
    ],
)
def test_a_status_that_lacks_something_is_refused_by_name(tmp_path: Path, spoil: Any, told: str) -> None:
    status = make_status(make_communicator([make_rank(0), make_rank(1)]))
    spoil(status)
    with pytest.raises(TraceError, match=told):
        import_status(tmp_path, status)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: text[: len(text) // 2], "is no whole status of NCCL's RAS: .* at byte"),
        (lambda text: text + text, "save one answer of ncclras"),
        (lambda text: text.replace('"size": 2', '"size": ' + "9" * 5_000), "is no JSON text"),
        (lambda text: text.replace('"communicators": [', '"communicators": ' + "[" * 100_000, 1), "is no"),
    ],
)
def test_a_text_that_is_no_status_is_refused(tmp_path: Path, change: Any, told: str) -> None:
    text = json.dumps(make_status(make_communicator([make_rank(0), make_rank(1)])), indent=2)
    with pytest.raises(TraceError, match=told):
        import_status(tmp_path, change(text))


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=2)
)


@given(st.sampled_from(("rank", "host", "pid", "cuda_dev", "nvml_dev", "status", "collective_counts")), ODD, ODD)
def test_odd_values_are_read_or_refused_but_never_raise_otherwise(key: str, value: Any, count: Any) -> None:
    rank = {**make_rank(0), "collective_counts": {"AllReduce": count}, key: value}
    try:
        status = read_status(make_status(make_communicator([rank, make_rank(1)])))
    except StatusError:
        return
    assert len(number_processes(status)) in (1, 2)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>" + "x" * 10_000
    rank = {**make_rank(0), "host": evil, "collective_counts": {evil: 3}}
    run = import_status(
        tmp_path, make_status(make_communicator([rank, {**make_rank(1), "collective_counts": {evil: 4}}]))
    )
    assert len(describe_end(must_hold(run))) < 1_000
