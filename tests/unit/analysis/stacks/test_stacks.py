"""What a phase and a stage spend their time in has the name that its owner would look for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.format.run import Run
from profiler_server.analysis.stacks.frames import parse_frame
from profiler_server.analysis.stacks.naming import bound_share
from profiler_server.analysis.stacks.stacks import Stacks, read_stacks
from profiler_server.diagnosis.limits.stacks import LEAST_SAMPLES
from profiler_server.facts.steps import Part
from profiler_server.store.redaction import redact
from tests.support.live import edit_rank
from tests.support.must import must
from tests.support.runs import build_run
from tests.support.stacks import in_phase, in_stage, in_thread, library, own, write_stacks

FORWARD = in_phase("forward", 200, library("Module._call_impl", "torch/nn/modules/module.py"), own("Net.forward", 7))


def _read(path: Path, *rows: dict[str, Any], **options: Any) -> Stacks:
    return must(read_stacks(Run(write_stacks(build_run(path / "run"), rows, **options)).rank(0)))


def _tell(part: Part) -> list[tuple[str, str, str, float]]:
    return [(entry.function, entry.caller, entry.place, round(entry.share_frac, 2)) for entry in part.functions]


def test_the_function_that_the_loop_calls_is_named_with_all_that_it_calls(tmp_path: Path) -> None:
    stacks = _read(
        tmp_path,
        FORWARD,
        in_phase("tail", 40, own("accuracy", 88), own("top_k", 12)),
        in_phase("tail", 21, own("accuracy", 89)),
        in_phase("tail", 30, library("Logger.info", "loguru/_logger.py")),
        in_phase("tail", 9),
    )
    assert _tell(stacks.phase("tail")) == [
        ("accuracy", "", "train.py:88", 0.61),
        ("loguru.Logger.info", "main", "train.py:60", 0.3),
        ("main", "", "train.py:60", 0.09),
    ]
    assert [entry.is_own_line for entry in stacks.phase("tail").functions] == [False, False, True]


def test_a_stage_that_waits_for_threads_tells_what_they_do(tmp_path: Path) -> None:
    result = "Condition.wait (/usr/lib/python3.11/threading.py:331)"
    stacks = _read(
        tmp_path,
        FORWARD,
        in_stage("read", 80, own("Photos.__getitems__", 20), result, replica=-1),
        in_stage("read", 20, own("Photos.__getitems__", 21), own("open_all", 30), replica=-1),
        in_thread("data_wait", 60, own("run", 9), own("decode", 44), own("decode.<locals>.<listcomp>", 45)),
        in_thread("forward", 30, own("run", 9), own("report", 60), library("dumps", "orjson/x.py"), stage="beside"),
    )
    shares = {entry.function: round(entry.share_frac, 2) for entry in stacks.stage(None, "read").functions}
    assert shares == {"run": 0.6, "threading.Condition.wait": 0.2, "open_all": 0.2}
    assert [entry.function for entry in stacks.stage(None, "threads").functions] == ["decode"]
    assert [entry.function for entry in stacks.stage(None, "beside", "threads").functions] == ["decode", "report"]


def test_phases_that_were_hardly_seen_tell_the_loop_together(tmp_path: Path) -> None:
    rows = [in_phase(name, 2, library("step", "torch/optim/sgd.py")) for name in ("backward", "optimizer")]
    found = _read(tmp_path, in_phase("forward", 60, own("World.step", 40)), *rows).phase("forward")
    assert _tell(found) == [("World.step", "", "train.py:40", 1.0)]


def test_of_a_single_phase_the_loop_is_what_calls_all_of_it(tmp_path: Path) -> None:
    rows = [
        in_phase("forward", 60, own("train", 90), own("World.step", 40)),
        in_phase("forward", 40, own("train", 92), library("Sequential.forward", "torch/nn/modules/container.py")),
    ]
    assert _tell(_read(tmp_path / "a", *rows).phase("forward")) == [
        ("World.step", "", "train.py:40", 0.6),
        ("torch.Sequential.forward", "train", "train.py:92", 0.4),
    ]
    alone = _read(tmp_path / "b", in_phase("tail", 50, own("accuracy", 88)))
    assert _tell(alone.phase("tail")) == [("accuracy", "", "train.py:88", 1.0)]


def test_a_helper_that_every_phase_calls_is_no_part_of_the_loop(tmp_path: Path) -> None:
    helper = own("busy", 3)
    phases = [in_phase(name, 50, own(name, 5), helper) for name in ("gap", "forward", "tail")]
    assert _tell(_read(tmp_path, *phases).phase("gap")) == [("gap", "", "train.py:5", 1.0)]


def test_what_the_data_set_calls_is_named_and_not_the_data_set(tmp_path: Path) -> None:
    item = own("Photos.__getitem__", 31, "data.py")
    stacks = _read(
        tmp_path,
        FORWARD,
        in_stage("read", 70, item, library("Image.resize", "PIL/Image.py"), library("ImageFile.load", "PIL/Image.py")),
        in_stage("read", 20, item, own("decode", 44, "data.py"), library("open", "PIL/Image.py")),
        in_stage("read", 10, item),
    )
    part = stacks.stage(0, "read")
    assert _tell(part) == [
        ("PIL.Image.resize", "Photos.__getitem__", "data.py:31", 0.7),
        ("decode", "", "data.py:44", 0.2),
        ("Photos.__getitem__", "", "data.py:31", 0.1),
    ]
    assert part.dominant is not None
    assert 0.07 < part.dominant.error_frac < 0.1


def test_an_expression_with_a_frame_of_its_own_is_part_of_the_function_around_it(tmp_path: Path) -> None:
    stacks = _read(
        tmp_path,
        FORWARD,
        in_phase("tail", 60, own("distance", 9), own("distance.<locals>.<genexpr>", 10)),
        in_phase("tail", 30, own("<listcomp>", 61), library("argmax", "torch/functional.py")),
        in_phase("tail", 10, own("<listcomp>", 61)),
    )
    assert _tell(stacks.phase("tail")) == [
        ("distance", "", "train.py:9", 0.6),
        ("torch.argmax", "main", "train.py:61", 0.3),
        ("main", "", "train.py:61", 0.1),
    ]


@pytest.mark.parametrize(("names", "named"), [(["AdamW"], "torch.AdamW.step"), (["AdamW", "Adam"], "torch.Adam.step")])
def test_an_update_has_the_name_of_the_only_class_of_optimizers(tmp_path: Path, names: list[str], named: str) -> None:
    path = build_run(tmp_path / "run")
    edit_rank(path, facts={"optimizers": [{"name": name} for name in names]})
    update = in_phase("optimizer", 40, library("Adam.step", "torch/optim/adam.py"))
    found = must(read_stacks(Run(write_stacks(path, [FORWARD, update])).rank(0)))
    assert [entry.function for entry in found.phase("optimizer").functions] == [named]


def test_a_decorator_is_named_by_what_it_decorates(tmp_path: Path) -> None:
    hook = library("Optimizer.profile_hook_step.<locals>.wrapper", "torch/optim/optimizer.py")
    rows = [
        in_phase("optimizer", 60, hook, library("Adam.step", "torch/optim/adam.py")),
        in_phase("optimizer", 20, hook),
        in_phase("tail", 40, own("timed.<locals>.wrapper", 5), own("accuracy", 88)),
    ]
    stacks = _read(tmp_path, FORWARD, *rows)
    assert _tell(stacks.phase("optimizer")) == [("torch.Adam.step", "main", "train.py:60", 1.0)]
    assert _tell(stacks.phase("tail")) == [("accuracy", "", "train.py:88", 1.0)]


def test_a_decorator_that_nothing_tells_more_of_has_its_own_name(tmp_path: Path) -> None:
    hook = library("Optimizer.profile_hook_step.<locals>.wrapper", "torch/optim/optimizer.py")
    stacks = _read(
        tmp_path, FORWARD, in_phase("optimizer", 60, hook), in_phase("tail", 40, own("timed.<locals>.inner", 5))
    )
    assert _tell(stacks.phase("optimizer")) == [("torch.Optimizer.profile_hook_step", "main", "train.py:60", 1.0)]
    assert _tell(stacks.phase("tail")) == [("timed", "", "train.py:5", 1.0)]


def test_batches_that_the_training_thread_makes_have_stages_too(tmp_path: Path) -> None:
    stacks = _read(tmp_path, FORWARD, in_stage("collate", 60, own("gather", 28), replica=-1))
    assert _tell(stacks.stage(0, "collate")) == [("gather", "", "train.py:28", 1.0)]
    assert stacks.phase("data_wait").samples == 60


@pytest.mark.parametrize(("of_one", "of_another", "named"), [(5, 0, 0), (6, 0, 1), (20, 9, 0), (21, 9, 2)])
def test_of_few_samples_only_what_is_surely_most_of_them_is_named(
    tmp_path: Path, of_one: int, of_another: int, named: int
) -> None:
    others = [in_phase("tail", of_another, own("log", 9))] if of_another else []
    stacks = _read(tmp_path, FORWARD, in_phase("tail", of_one, own("accuracy", 88)), *others)
    assert (stacks.phase("tail").samples < LEAST_SAMPLES) == (named < 2)
    assert [name for name, *_ in _tell(stacks.phase("tail"))] == ["accuracy", "log"][:named]


def test_of_few_samples_nothing_is_named_where_the_loop_is_a_guess(tmp_path: Path) -> None:
    stacks = _read(tmp_path, in_phase("tail", 20, own("train", 83), own("accuracy", 88)), in_phase("gap", 2))
    assert stacks.phase("tail").functions == ()


def test_neither_the_warm_up_nor_evaluation_counts(tmp_path: Path) -> None:
    late = [FORWARD, in_phase("forward", 90, own("validate", 4), kind="eval")]
    assert _read(tmp_path, *late).phase("forward").samples == 200
    early = must(read_stacks(Run(write_stacks(build_run(tmp_path / "early"), [FORWARD], start_ns=0)).rank(0)))
    assert not early.phases


def test_a_run_without_stacks_and_one_whose_names_are_left_out_have_none(tmp_path: Path) -> None:
    assert read_stacks(Run(build_run(tmp_path / "run")).rank(0)) is None
    write_stacks(tmp_path / "run", [FORWARD])
    assert read_stacks(redact(Run(tmp_path / "run")).rank(0)) is None


@pytest.mark.parametrize(
    ("line", "label"),
    [
        ("make.<locals>.step (/home/me/train.py:3)", "step"),
        ("<module> (/home/me/train.py:3)", "train.py"),
        ("dumps (/usr/lib/python3.11/json/__init__.py:231)", "json.dumps"),
        ("Image.resize (/venv/lib64/python3.12/site-packages/PIL/Image.py:2)", "PIL.Image.resize"),
        ("tqdm.update (/venv/lib/python3.12/site-packages/tqdm.py:2)", "tqdm.tqdm.update"),
        ("(other)", "(other)"),
        ("", "(unknown)"),
    ],
)
def test_a_frame_has_the_name_that_its_owner_writes(line: str, label: str) -> None:
    assert parse_frame(line).label == label


@settings(max_examples=40)
@given(st.integers(1, 5_000), st.data())
def test_a_share_lies_between_its_bounds(whole: int, data: st.DataObject) -> None:
    part = data.draw(st.integers(0, whole))
    low, high = bound_share(part, whole)
    assert 0.0 <= low <= part / whole + 1e-12
    assert part / whole - 1e-12 <= high <= 1.0


@pytest.mark.parametrize(
    "hidden",
    [
        "… (…:0)",
        "forward (<eval_with_key>.41:32)",
        "call (/tmp/torchinductor_me/ab/cab12.py:90)",
        "argmap_cut_5 (<class 'networkx.utils.decorators.argmap'> compilation 8:3)",
    ],
)
def test_frames_that_were_left_out_or_written_by_a_library_are_no_code_of_the_users(
    tmp_path: Path, hidden: str
) -> None:
    compiling = (
        library("compile_frame", "torch/_dynamo/convert_frame.py"),
        hidden,
        library("run", "torch/fx/graph.py"),
    )
    tail = in_phase("tail", 40, own("log", 9))
    found = _read(tmp_path, in_phase("forward", 60, *compiling), tail).phase("forward")
    assert _tell(found) == [("torch.compile_frame", "main", "train.py:60", 1.0)]
