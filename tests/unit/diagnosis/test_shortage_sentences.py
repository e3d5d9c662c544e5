"""A job that ran out of memory: one answer on who asked for it, what held it, and what to do, on every page and report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import open_run
from profiler_server.analysis.ranks.ending import find_end
from profiler_server.analysis.ranks.ends import OutOfMemory, Raised
from profiler_server.analysis.ranks.shortage import HeldTensor, Shortage
from profiler_server.diagnosis.end_sentences import describe_end
from profiler_server.diagnosis.shortage_sentences import find_remedy
from profiler_server.report.brief import write_brief
from profiler_server.report.building import build_report
from profiler_server.store.redaction import redact
from tests.support.asking import Asker
from tests.support.live import edit_rank
from tests.support.machines import build_ranks
from tests.support.runs import RunPlan, build_run

GIB = 1 << 30
BY = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {} has a total capacity of 80.00 GiB"
FACT: dict[str, Any] = {
    "device": "cuda:0",
    "requested_bytes": 2 * GIB,
    "total_bytes": 80 * GIB,
    "free_bytes": GIB,
    "process_bytes": 79 * GIB,
    "allocated_bytes": 78 * GIB,
    "unallocated_bytes": GIB // 2,
    "place": "train.py:41",
    "function": "Block.forward",
    "module": "blocks.3 (Block)",
    "phase": "forward",
    "parameter_bytes": 6 * GIB,
    "gradient_bytes": 6 * GIB,
    "optimizer_bytes": 12 * GIB,
    "tensors": [
        {"bytes": 4 * GIB, "name": "scores", "function": "Block.forward", "shape": [64, 16, 1024, 1024], "dtype": "float32"},
        {"bytes": GIB, "name": "kept", "function": "<module>", "shape": [], "dtype": "float32", "count": 30},
    ],
}  # fmt: skip
SHORTAGE = Shortage(
    **{**FACT, "tensors": tuple(HeldTensor(**{**each, "shape": tuple(each["shape"])}) for each in FACT["tensors"])}
)
REST = (
    " It asked for 2.00 GiB; 1.00 GiB of 80.0 GiB were free. Parameters take 6.00 GiB, gradients 6.00 GiB, optimizer state "
    "12.0 GiB, all other tensors 54.0 GiB. Largest local tensors: scores in Block.forward, 4.00 GiB (64×16×1024×1024 "
    "float32); kept, 1.00 GiB (30 of them, float32). The other tensors are the most, such as activations: a smaller batch "
    "or activation checkpointing lowers them."
)


def fail(path: Path, fact: object, rank: int = 0, ended_ns: int = 1) -> None:
    edit_rank(path, rank, ended_unix_ns=ended_ns, facts={"ended_by": BY.format(rank), "out_of_memory": fact})


def build_alone(path: Path, fact: object = FACT) -> Path:
    run = build_run(path, RunPlan(operators=False))
    fail(run, fact)
    return run


def test_a_run_says_where_it_ran_out_of_memory_what_held_it_and_what_to_do(tmp_path: Path) -> None:
    run = open_run(build_alone(tmp_path / "run"))
    end = find_end(run)
    assert end == OutOfMemory((), BY.format(0), 40, 0, None, SHORTAGE)
    sentence = describe_end(end)
    assert sentence == (
        "The training ran out of memory on cuda:0 after 40 steps, in the forward, at train.py:41 in Block.forward, module "
        "blocks.3 (Block)." + REST
    )
    assert write_brief(run)[0] == sentence
    report = build_report(run)["end"]
    assert (report["kind"], report["sentence"], report["error"]) == ("out_of_memory", sentence, BY.format(0))
    assert report["shortage"]["tensors"][0] == {**FACT["tensors"][0], "count": 1}
    assert {**report["shortage"], "tensors": 0} == {**FACT, "tensors": 0}


def test_the_pages_show_it_escaped(tmp_path: Path) -> None:
    build_alone(tmp_path / "run", {**FACT, "function": "<b>forward</b>", "place": "\x1b[31m" + 500 * "x"})
    for page in ("", "ranks"):
        text = Asker(tmp_path).ask(f"/runs/run/{page}").text
        assert "&lt;b&gt;forward&lt;/b&gt;, module blocks.3 (Block)" in text
        assert "<b>forward" not in text
        assert 100 * "x" not in text
        assert "asked for 2.00 GiB" in text


def test_the_headline_of_overall_is_where_and_the_rest_stands_below(tmp_path: Path) -> None:
    build_alone(tmp_path / "run")
    head = Asker(tmp_path).ask("/runs/run/").text.partition('<h1 class="verdict">')[2]
    headline, _, below = head.partition("</h1>")
    assert headline.endswith("module blocks.3 (Block).")
    detail, _, more = below.partition("</p>")
    assert detail.strip() == f'<p class="verdict-gain">{REST.strip()}'
    assert more.strip().startswith('<p class="verdict-gain">Until then: ')


def test_the_ranks_that_ran_out_of_memory_are_named_with_the_figures_of_the_first(tmp_path: Path) -> None:
    run = build_ranks(tmp_path / "run", 4)
    fail(run, FACT, 1, ended_ns=20)
    fail(run, {**FACT, "requested_bytes": 1, "device": "cuda:2"}, 2, ended_ns=30)
    edit_rank(run, 3, ended_unix_ns=10, facts={"ended_by": "RuntimeError: Connection closed by peer [127.0.0.1]:1"})
    end = find_end(open_run(run))
    assert isinstance(end, OutOfMemory)
    assert (end.ranks, end.rank, end.lost) == ((1, 2), 1, 1)
    assert describe_end(end) == (
        "The training ran out of memory on cuda:0 (ranks 1, 2) after 60 steps, in the forward, at train.py:41 in "
        "Block.forward, module blocks.3 (Block); 1 other rank lost the connection."
        + REST.replace("It asked", "Rank 1 asked")
    )


def test_a_redacted_run_keeps_the_figures_and_loses_the_names(tmp_path: Path) -> None:
    sentence = describe_end(find_end(redact(open_run(build_alone(tmp_path / "run")))) or Raised((), "", 0, 0))
    assert sentence.startswith(
        "The training ran out of memory on cuda:0 after 40 steps, in the forward. It asked for 2.00"
    )
    assert "a tensor, 4.00 GiB (64×16×1024×1024 float32)" in sentence
    for name in ("train.py", "Block", "blocks", "scores", "kept"):
        assert name not in sentence


@pytest.mark.parametrize("fact", [7, {"requested_bytes": -1}, {"tensors": [{"name": "x"}]}, {"parameter_bytes": "6"}])
def test_a_damaged_fact_leaves_the_error_alone(fact: object, tmp_path: Path) -> None:
    end = find_end(open_run(build_alone(tmp_path / "run", fact)))
    assert end == Raised((), BY.format(0), 40, 0)


def test_without_figures_the_place_alone_is_said(tmp_path: Path) -> None:
    end = find_end(open_run(build_alone(tmp_path / "run", {"device": "cpu", "phase": "<script>"})))
    assert end is not None
    assert describe_end(end) == "The training ran out of memory on the host after 40 steps."


def test_the_host_has_no_free_part_but_what_the_process_held(tmp_path: Path) -> None:
    fact = {"device": "cpu", "requested_bytes": 90 * GIB, "total_bytes": 80 * GIB, "process_bytes": GIB}
    end = find_end(open_run(build_alone(tmp_path / "run", fact)))
    assert end is not None
    assert describe_end(end) == (
        "The training ran out of memory on the host after 40 steps. It asked for 90.0 GiB; the process held 1.00 GiB of "
        "80.0 GiB. No memory of this size has room for that: check the shapes at that line."
    )


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({}, "rest"),
        ({"requested_bytes": 80 * GIB}, "rest"),
        ({"requested_bytes": 80 * GIB + 1}, "too_large"),
        ({"unallocated_bytes": 2 * GIB - 1}, "rest"),
        ({"unallocated_bytes": 2 * GIB}, "in_pieces"),
        ({"unallocated_bytes": 2 * GIB, "requested_bytes": None}, "rest"),
        ({"optimizer_bytes": 27 * GIB}, "state"),
        ({"optimizer_bytes": 26 * GIB}, "rest"),
        ({"allocated_bytes": 30 * GIB, "process_bytes": 30 * GIB}, "others"),
        ({"allocated_bytes": 30 * GIB, "process_bytes": 60 * GIB}, "state"),
        ({"parameter_bytes": 0, "gradient_bytes": 0, "optimizer_bytes": 0}, ""),
        ({"allocated_bytes": None}, ""),
    ],
)
def test_what_to_do_is_said_where_the_figures_show_it(changes: dict[str, Any], remedy: str) -> None:
    assert find_remedy(replace(SHORTAGE, **changes)) == remedy


@pytest.mark.parametrize(
    ("count", "size", "remedy"), [(30, 39 * GIB + 1, "list"), (30, 39 * GIB, "rest"), (1, 50 * GIB, "rest")]
)
def test_a_list_that_is_most_of_the_memory_is_named(count: int, size: int, remedy: str) -> None:
    assert find_remedy(replace(SHORTAGE, tensors=(HeldTensor(size, count=count),))) == remedy
