"""The time to the first step by cause: the parts sum to the whole, and each stack has one owner."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import Run, open_run
from collector.traces.importing import import_trace
from profiler_server.analysis.stacks.frames import StackParser
from profiler_server.analysis.steps.start_up import find_cause, measure_start_up
from profiler_server.diagnosis.start_sentences import is_worth_a_bar, say_basis, say_start_up
from profiler_server.facts.start_up import StartUp
from profiler_server.report import build_report
from profiler_server.report.text import render_text
from profiler_server.store.redaction import Redactor
from tests.support.cases import Plant, build_case_run
from tests.support.must import must
from tests.support.overall_page import show
from tests.support.row_edits import Row
from tests.support.runs import EPOCH_UNIX_NS, MS
from tests.support.stacks import LIBRARY, MAIN, library, own, write_stacks
from tests.support.traces import training_steps, write_trace

SECOND = 1000 * MS
MODULE = library("<module>", "pandas/core/api.py", 23)
LOADER = library("_MultiProcessingDataLoaderIter.__init__", "torch/utils/data/dataloader.py")
LINEAR = library("Linear.reset_parameters", "torch/nn/modules/linear.py")
CONVERT = library("_compile", "torch/_dynamo/convert_frame.py")


@pytest.mark.parametrize(
    ("frames", "cause"),
    [
        ((), None),
        ((own("settle", 16),), None),
        ((MODULE,), "imports"),
        ((MODULE, library("Basic.__init_subclass__", "sympy/core/basic.py")), "imports"),
        ((own("Photos.__init__", 9),), "data"),
        ((library("read_csv", "pandas/io/parsers/readers.py"),), "data"),
        ((library("load_dataset", "datasets/load.py"),), "data"),
        ((LINEAR,), "weights"),
        ((library("Auto.from_pretrained", "transformers/models/auto/auto_factory.py"), LINEAR), "weights"),
        ((library("Tokenizer.from_pretrained", "transformers/tokenization_utils_base.py"),), "data"),
        (
            (library("Module.to", "torch/nn/modules/module.py"), library("_lazy_init", "torch/cuda/__init__.py")),
            "setup",
        ),
        ((library("init_process_group", "torch/distributed/distributed_c10d.py"),), "setup"),
        ((LOADER,), "first_batch"),
        ((library("Module._call_impl", "torch/nn/modules/module.py"), CONVERT, MODULE), "compile"),
        ((library("compile", "torch/__init__.py"), MODULE), "compile"),
        ((library("<module>", "torch/_dynamo/convert_frame.py"),), "imports"),
    ],
)
def test_a_stack_belongs_to_its_innermost_known_frame_and_to_a_compilation_first(
    frames: Sequence[str], cause: str | None
) -> None:
    stack = StackParser().parse("\n".join([*MAIN, *frames]))
    assert find_cause(stack, frozenset({"Photos"})) == cause


@pytest.mark.parametrize("command", ["bin/profiler-run", "bin/stepscope", "site-packages/stepscope/__main__.py"])
def test_the_command_that_records_is_no_import_of_the_script(command: str) -> None:
    text = f"<module> (/venv/{command}:8)\nrun_profiler ({LIBRARY}/profiler_server/entry.py:32)\n" + MAIN[0]
    assert find_cause(StackParser().parse(text)) is None


def _start(rows: list[Row]) -> None:
    """Let the start-up take 10 s, and the first step 4 s longer, of which 1 s is the wait for its batch."""
    rows.insert(0, {**rows[0], "kind": "startup", "step": 0, **{n: 0 for n in rows[0] if n.endswith("_ns")}})
    rows[0]["duration_ns"] = rows[0]["gap_ns"] = 10 * SECOND
    rows[1]["data_wait_ns"] += SECOND
    rows[1]["forward_ns"] += 3 * SECOND
    rows[1]["duration_ns"] += 4 * SECOND


def _sample(at_s: float, samples: int, *frames: str, kind: str = "startup", phase: str = "gap") -> dict[str, Any]:
    stack = "\n".join([*MAIN, *frames])
    times = {"start_ns": round(at_s * SECOND), "duration_ns": 0}
    return {"replica": -1, "entry": 0, "kind": kind, "phase": phase, "samples": samples, "stack": stack, **times}


SAMPLES = (
    _sample(2.0, 40, MODULE),
    _sample(5.0, 20, own("Photos.__init__", 9)),
    _sample(7.0, 20, own("settle", 16)),
    _sample(10.5, 50, LOADER, kind="train", phase="data_wait"),
    _sample(11.5, 60, CONVERT, kind="train", phase="forward"),
    _sample(13.0, 15, LINEAR, kind="train", phase="forward"),
    _sample(99.0, 500, own("later", 70), kind="train", phase="forward"),
)
STARTED = {
    "since_unix_ns": EPOCH_UNIX_NS - 4 * SECOND,
    "is_process": True,
    "began_unix_ns": EPOCH_UNIX_NS - SECOND,
    "torch_unix_ns": [EPOCH_UNIX_NS - 3 * SECOND, EPOCH_UNIX_NS - SECOND],
}
LINES = {"/home/me/train.py": {"16": "while not ready():"}}


def _build(path: Path, samples: Sequence[dict[str, Any]] = SAMPLES, facts: Mapping[str, Any] | None = None) -> Run:
    facts = {"start_up": STARTED, "source_lines": LINES} if facts is None else facts
    build_case_run(path, Plant(edit=_start, manifest={"facts": facts}, loader={"dataset": "Photos"}))
    if samples:
        write_stacks(path, samples)
    return open_run(path)


def _measure(run: Run) -> tuple[StartUp, dict[str, float]]:
    start = must(measure_start_up(run.rank(0)))
    assert sum(part.duration_ns for part in start.parts) == start.total_ns
    return start, {part.cause: round(part.duration_ns / SECOND, 2) for part in start.parts}


def test_the_parts_sum_to_the_time_from_the_process_to_the_end_of_the_first_step(tmp_path: Path) -> None:
    start, parts = _measure(_build(tmp_path / "run"))
    assert parts == {
        "before": 1.0,
        "imports": 6.0,  # 2 s of torch, half of the 8 s that were sampled
        "recording": 1.0,
        "data": 2.0,
        "compile": 2.45,  # 60 of 75 samples of the rest of the first step
        "first_batch": 1.0,
        "script": 2.0,
        "unseen": 2.0,
        "step": 0.61,
    }
    assert (start.is_process, start.samples) == (True, 155)
    (script,) = (part for part in start.parts if part.cause == "script")
    assert (script.place, script.line) == ("train.py:16", "while not ready():")
    assert script.low_ns < script.duration_ns < script.high_ns


def test_all_that_a_line_with_an_import_does_is_importing(tmp_path: Path) -> None:
    late = library("_LazyModule.__getattr__", "transformers/models/auto/__init__.py")
    facts = {"source_lines": {"/home/me/train.py": {"2": "from transformers import AutoModel"}}}
    _, parts = _measure(_build(tmp_path / "run", [_sample(0.05, 9, own("<module>", 2), late)], facts))
    assert parts["imports"] == 10.0


def test_without_stacks_only_what_was_measured_has_a_name(tmp_path: Path) -> None:
    start, parts = _measure(_build(tmp_path / "run", ()))
    assert parts == {"before": 1.0, "imports": 2.0, "recording": 1.0, "first_batch": 1.0, "unseen": 10.0, "step": 3.06}
    assert "No stack was sampled" in say_basis(start)


@pytest.mark.parametrize(
    "facts",
    [{}, {"start_up": 7}, {"start_up": {**STARTED, "since_unix_ns": EPOCH_UNIX_NS + SECOND}}],
    ids=["older run", "damaged", "clock set back"],
)
def test_an_unknown_start_counts_from_the_recording(tmp_path: Path, facts: Mapping[str, Any]) -> None:
    _, parts = _measure(_build(tmp_path / "run", SAMPLES, facts))
    assert {"before", "recording"}.isdisjoint(parts)
    assert parts["imports"] == 4.0


def test_an_evaluation_before_the_first_step_is_no_model_that_is_built(tmp_path: Path) -> None:
    _, parts = _measure(_build(tmp_path / "run", [_sample(0.05, 10, LINEAR, kind="eval", phase="forward")]))
    assert "weights" not in parts
    assert parts["script"] == 10.0


def test_a_trace_of_another_profiler_has_no_start(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "trace.json", training_steps())
    assert measure_start_up(import_trace(trace, tmp_path / "run").rank(0)) is None


def test_a_sentence_names_the_largest_parts_and_the_line_of_the_scripts_own(tmp_path: Path) -> None:
    start, _ = _measure(_build(tmp_path / "run"))
    said = say_start_up(start)
    assert said.startswith("18.1 s from the start of the process to the end of the first step: imports 6.00 s (33.2 %)")
    only = dataclasses.replace(start, parts=tuple(part for part in start.parts if part.cause == "script"))
    assert "the script's own at train.py:16" in say_start_up(only)


@pytest.mark.parametrize(
    ("total_s", "recorded_s", "has_bar"), [(2.9, 10, False), (3, 60, True), (3, 61, False), (60, 90_000, True)]
)
def test_the_bar_is_for_starts_that_are_worth_it(
    tmp_path: Path, total_s: float, recorded_s: float, has_bar: bool
) -> None:
    start = StartUp(round(total_s * SECOND), True, (), 0, round(recorded_s * SECOND))
    assert is_worth_a_bar(start) is has_bar


def test_overall_shows_the_bar_and_the_lines(tmp_path: Path) -> None:
    card = must(show(_build(tmp_path / "run").path).start_up)
    assert (card.noun, card.total) == ("step", "18.1 s")
    assert [part.label for part, _ in card.rows][:3] == ["Before the recording", "Imports", "Stepscope"]
    assert "train.py:16, while not ready():" in [line for _, line in card.rows]
    assert card.sentence.startswith(
        "From the start of the process to the end of the first step. The parts come from 155"
    )


def test_the_report_has_a_line_and_a_key(tmp_path: Path) -> None:
    run = _build(tmp_path / "run")
    report = build_report(run)
    found = report["ranks"][0]["start_up"]
    assert found["total_ns"] == sum(part["duration_ns"] for part in found["parts"])
    assert "\n  first step  18.1 s from the start of the process" in render_text(report, run)


def test_a_redacted_report_shows_no_line_of_the_script(tmp_path: Path) -> None:
    run = Run(_build(tmp_path / "run").path, Redactor())
    (found,) = (rank["start_up"] for rank in build_report(run)["ranks"])
    assert {(part["place"], part["line"]) for part in found["parts"]} == {("", "")}
    assert found["samples"] == 0
