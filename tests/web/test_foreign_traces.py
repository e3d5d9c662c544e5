"""Traces of other profilers and other versions: the figures are right, nothing is lost, and every page opens."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import Run
from collector.traces.importing import import_trace
from profiler_server.report import build_report
from profiler_server.report.text import render_text
from tests.support.asking import Asker
from tests.support.runs import build_run
from tests.support.traces import Event, call, copy, kernel, operator, step, training_steps, write_trace

SLUGS = ("", "steps", "operators", "data", "device", "memory", "ranks", "timeline")


def _event(category: str, name: str, at_us: float, length_us: float, place: tuple[Any, Any], **args: Any) -> Event:
    pid, tid = place
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": at_us,
        "dur": length_us,
        "args": args,
    }


def _torch_1_8() -> list[Event]:
    """Capitalised categories, whole microseconds, ids with a small letter."""
    events = []
    for number in range(3):
        at, link = 1000 * number, number + 1
        events += [
            _event("Operator", f"ProfilerStep#{number}", at, 900, (10, 10)),
            _event(
                "Operator", "aten::mm", at + 10, 200, (10, 10), **{"External id": link, "Input dims": [[2, 2], [2, 2]]}
            ),
            _event("Runtime", "cudaLaunchKernel", at + 20, 10, (10, 10), **{"correlation": link, "external id": link}),
            _event("Kernel", "volta_sgemm", at + 50, 100, (0, "stream 7"), device=0, stream=7, correlation=link),
            _event(
                "Memcpy", "Memcpy HtoD", at + 200, 50, (0, "stream 7"), device=0, stream=7, correlation=0, bytes="64"
            ),
        ]
    return events


def _rocm() -> list[Event]:
    return [
        step(1, 0, 500),
        operator("aten::mm", 10, 100),
        _event("cuda_runtime", "hipExtModuleLaunchKernel", 1_000_020, 5, (100, 100), correlation=5),
        _event("kernel", "Cijk_Ailk_Bljk_HHS_BH", 1_000_040, 60, (2, 0), device=2, stream=0, correlation=5),
        _event("gpu_memcpy", "CopyHostToDevice", 1_000_110, 10, (2, 0), device=2, stream=0, correlation=6),
    ]


def _xpu() -> list[Event]:
    return [
        step(1, 0, 500),
        operator("aten::mm", 10, 100),
        _event("xpu_runtime", "piEnqueueKernelLaunch", 1_000_020, 5, (100, 100), correlation=5),
        _event("kernel", "gemm_kernel", 1_000_040, 60, (0, 1), device=0, correlation=5, **{"sycl queue": 1}),
    ]


def _mtia() -> list[Event]:
    return [
        step(1, 0, 500),
        _event("mtia_runtime", "mtia::launch", 1_000_020, 5, (100, 100), correlation=5),
        _event("mtia_ccp_events", "fba_kernel", 1_000_040, 60, (0, 3), device=0, stream=3, correlation=5),
        _event("mtia_workloadd", "workload", 1_000_040, 60, ("mtia", "w")),
    ]


def _triton() -> list[Event]:
    shape: dict[str, Any] = {"est. achieved occupancy %": 50, "blocks per SM": 2.0}
    return [
        step(1, 0, 500),
        _event("cuda_driver", "cuLaunchKernelEx", 1_000_020, 5, (100, 100), correlation=5),
        kernel("triton_poi_fused_add_0", 40, 60, 5, **shape),
    ]


def _graphs() -> list[Event]:
    launches = [kernel(f"k{at}", at, 10, 5, **{"graph node id": at}) for at in (40, 50, 60, 70, 80, 90)]
    return [step(1, 0, 500), call(20, 5, 5, "cudaGraphLaunch"), *launches]


def _several_devices() -> list[Event]:
    second = [_event("kernel", "k", 1_000_060, 30, (1, 7), device=1, stream=7, correlation=6)]
    return [step(1, 0, 500), call(20, 5, 5), kernel("k", 40, 30, 5), call(30, 5, 6), *second]


def _begin_and_end() -> list[Event]:
    ends = {"aten::mm": (10, 70), "aten::add": (20, 60)}
    marks = [
        {"ph": phase, "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ends[name][phase == "E"]}
        for phase, name in (("B", "aten::mm"), ("B", "aten::add"), ("E", "aten::add"), ("E", "aten::mm"))
    ]
    counter = {"ph": "C", "name": "queue", "pid": 1, "tid": 0, "ts": 30, "args": {"depth": 3}}
    return [*marks, counter]


@dataclass(frozen=True)
class _Case:
    """Events, keys beside them, and what must come out: device time per kernel table, steps, launches found."""

    events: list[Event]
    kernel_us: int
    steps: int
    linked: int
    keys: dict[str, Any] = field(default_factory=dict)


CASES = {
    "torch 1.8": _Case(_torch_1_8(), 300, 3, 3),
    "today": _Case(
        training_steps(3), 750, 3, 6, {"baseTimeNanoseconds": 1_700_000_000_000_000_000, "displayTimeUnit": "ms"}
    ),
    "ROCm": _Case(_rocm(), 60, 1, 1),
    "XPU": _Case(_xpu(), 60, 1, 1),
    "MTIA": _Case(_mtia(), 60, 1, 1),
    "Triton": _Case(_triton(), 60, 1, 1),
    "CUDA graphs": _Case(_graphs(), 60, 1, 6),
    "several devices": _Case(_several_devices(), 60, 1, 2),
    "device only": _Case([kernel("k", at, 10, 0) for at in (1, 20, 40)] + [copy(60, 5, 0)], 30, 1, 0),
    "host only": _Case([step(1, 0, 90), operator("aten::add", 10, 20), step(2, 100, 90)], 0, 2, 0),
    "begin and end": _Case(_begin_and_end(), 0, 1, 0, {"displayTimeUnit": "ns"}),
    "nanosecond unit": _Case(training_steps(3), 750, 3, 6, {"displayTimeUnit": "ns", "traceName": "x"}),
}


def _write(path: Path, case: _Case) -> Path:
    path.write_text(json.dumps({**case.keys, "traceEvents": case.events}), encoding="utf-8")
    return path


def _check_pages(base: Path, run: Run) -> None:
    asker = Asker(base)
    for slug in SLUGS:
        answer = asker.ask(f"/runs/{run.path.name}/{slug}")
        assert answer.status_code == 200, slug
        assert "cannot be shown" not in answer.text, slug


@pytest.mark.parametrize("name", CASES)
def test_trace_of_any_producer_is_counted_whole_and_shown(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    run = import_trace(_write(tmp_path / "t.json", case), tmp_path / "base/run")
    rank = run.rank()
    assert sum(rank.table("kernels")["total_ns"].to_pylist()) == 1000 * case.kernel_us
    assert rank.count_steps() == case.steps
    slices = rank.table("slices").to_pylist()
    assert sum(row["launched_by"] is not None for row in slices if row["category"] == "kernel") == case.linked
    assert rank.manifest.events_lost == 0
    assert rank.manifest.facts["events"]["slices"] == len(slices)
    _check_pages(tmp_path / "base", run)


def test_folder_of_workers_is_one_run_of_ranks_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for worker in (0, 2, 10):
        case = _Case([step(1, 0, 100), operator(f"aten::of_{worker}", 10, 20)], 0, 1, 0)
        _write(folder / f"host_{worker}.1700000000000.pt.trace.json", case)
    run = import_trace(folder, tmp_path / "base/run")
    named = [run.table("operators", rank)["name"].to_pylist() for rank in run.ranks]
    assert named == [["aten::of_0"], ["aten::of_2"], ["aten::of_10"]]
    _check_pages(tmp_path / "base", run)


def test_members_of_a_gzip_may_end_anywhere(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": training_steps(3)}).encode()
    members = [gzip.compress(text[at : at + 700]) for at in range(0, len(text), 700)]
    (tmp_path / "t.json.gz").write_bytes(b"".join(members))
    run = import_trace(tmp_path / "t.json.gz", tmp_path / "run")
    assert run.rank().count_steps() == 3
    assert run.rank().manifest.warnings == ()


PAIRS = [event for at in range(10, 500, 10) for event in (call(at, 1, at), kernel("gemm", at + 5, 4, at))]
COMPLETE = "complete"
HONEST: dict[str, list[Event]] = {
    COMPLETE: PAIRS,
    "not complete: 1 event listed twice, counted once": [*PAIRS, PAIRS[0]],
}


@pytest.mark.parametrize("line", HONEST)
def test_the_line_stands_on_the_first_page_and_in_the_report(tmp_path: Path, line: str) -> None:
    trace = write_trace(tmp_path / "trace.json", HONEST[line])
    run = import_trace(trace, tmp_path / "base/run")
    page = Asker(tmp_path / "base").ask("/runs/run/").text
    found = re.findall(r"<dt>Trace</dt><dd>(.*?)</dd>", page)
    assert len(found) == 1
    assert line in found[0]
    report = build_report(run)
    text = render_text(report, run)
    assert text.count("\n  trace     ") == 1
    assert line in text
    assert report["ranks"][0]["completeness"]


def test_a_run_that_was_recorded_has_no_such_line(tmp_path: Path) -> None:
    build_run(tmp_path / "run")
    assert "<dt>Trace</dt>" not in Asker(tmp_path).ask("/runs/run/").text


def test_what_stands_there_is_shown_as_text_and_cut(tmp_path: Path) -> None:
    run = import_trace(write_trace(tmp_path / "t.json", training_steps()), tmp_path / "base/run")
    file = run.rank(0).folder / "rank.json"
    file.write_text(file.read_text().replace('"completeness": "complete"', '"completeness": "<b>' + "x" * 5000 + '"'))
    page = Asker(tmp_path / "base").ask("/runs/run/").text
    assert "&lt;b&gt;xxx" in page
    assert "x" * 1001 not in page
