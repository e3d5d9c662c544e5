"""Drawn programs: they give nothing away, the same seed draws the same ones, and they run in both forms."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

from profiler_server.facts.results import Suggestion
from tests.zoo.draw.choosing import draw_programs, list_plants, list_works
from tests.zoo.draw.feeds import Feed
from tests.zoo.draw.parts import Plan, Work
from tests.zoo.draw.writing import Recipe, write_imports, write_sample
from tests.zoo.scoring.outcome import follow
from tests.zoo.scoring.recording import Recorder

DRAWN = draw_programs(7, 60, 16)
PLANTED = [one for one in DRAWN if one.cause]
OURS = ("collector", "profiler_server", "stepscope", "profiler")


def test_the_same_seed_draws_the_same_texts() -> None:
    assert draw_programs(7, 60, 16) == DRAWN
    texts = {one.text for one in DRAWN}
    assert len(texts) == len(DRAWN)
    assert not texts & {one.text for one in draw_programs(8, 60, 16)}


def test_no_program_hides_a_module() -> None:
    assert all(one.script.startswith("train_") and one.script.isidentifier() for one in DRAWN)
    assert len({one.script for one in draw_programs(7, 200, 100)}) == 300


def test_all_plants_and_kinds_of_work_are_drawn() -> None:
    assert len(PLANTED) == 60
    assert {one.why for one in PLANTED} == {plant.why for plant in list_plants() if plant.cause}
    assert set(Counter(one.work for one in DRAWN)) == {work.key for work in list_works()}
    assert len({one.feed for one in DRAWN}) >= 8
    assert len({one.loop for one in DRAWN}) >= 7


def test_programs_name_no_cause() -> None:
    # The name of a type is a word of every program that uses it.
    causes = {rule for plant in list_plants() for rule in (plant.cause, *plant.accept)} - {"", "float64"}
    words = {*causes, *(cause.replace("_", " ") for cause in causes), "slow", "stall", "plant", *OURS}
    assert [(one.script, word) for one in DRAWN for word in words if word in one.text.lower()] == []


def test_programs_can_be_parsed_and_use_what_they_import() -> None:
    for one in DRAWN:
        nodes = list(ast.walk(ast.parse(one.text)))
        imports = [alias for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names]
        imported = {(alias.asname or alias.name).partition(".")[0] for alias in imports}
        assert imported - {node.id for node in nodes if isinstance(node, ast.Name)} == set(), one.script
        assert "$" not in one.text, one.script
        assert max(map(len, one.text.splitlines())) <= 120, one.script


def test_only_planted_programs_have_a_second_form() -> None:
    assert [one.script for one in DRAWN if ("args.fixed" in one.text) != bool(one.cause)] == []


SWAPS = [(work.key, part) for work in list_works() for part in work.swaps if part != "world"]


def make_batch(work: Work, part: str, is_fixed: bool, where: Path) -> list[torch.Tensor]:
    """Make a batch of four samples by the functions of a program in which this step is written both ways."""
    plan = Plan(swap=part)
    pieces = write_sample(Recipe(work, plan, "map", "plain", "", "", 0), Feed("", "", ""))
    body = "\n".join([work.constants.replace("$batch", "4"), *pieces])
    space: dict[str, Any] = {"args": SimpleNamespace(fixed=is_fixed)}
    exec(compile(f"{write_imports(body)}\n{body}", work.key, "exec"), space)
    space["prepare"](str(where))
    load = work.load.rpartition("def ")[2].partition("(")[0]
    item = work.item.replace("$transform", work.transform_name)
    samples = [eval(item, space, {"raw": space[load](str(where), index), "index": index}) for index in range(4)]
    return list(space.get(work.collate_name, default_collate)(samples))


@pytest.mark.parametrize(("key", "part"), SWAPS)
def test_both_ways_of_a_step_make_batches_of_one_kind(key: str, part: str, tmp_path: Path) -> None:
    work = next(work for work in list_works() if work.key == key)
    made = []
    for is_fixed in (False, True):
        folder = tmp_path / str(is_fixed)
        folder.mkdir()
        made.append(make_batch(work, part, is_fixed, folder))
    base, fixed = ([(tensor.dtype, tensor.dim(), tensor.shape[0]) for tensor in batch] for batch in made)
    assert base == fixed


FORMS = [("worker_restart", ("--fixed",)), ("python_gap", ())]


@pytest.mark.slow
@pytest.mark.parametrize(("cause", "arguments"), FORMS, ids=[cause for cause, _ in FORMS])
def test_a_drawn_program_is_recorded_as_it_stands(cause: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    one = next(one for one in PLANTED if one.cause == cause)
    (tmp_path / f"{one.script}.py").write_text(one.text, "utf-8")
    recorder = Recorder(tmp_path, tmp_path / "kept", steps=6)
    found = recorder.record(one.script, "form", arguments)
    assert found.ran.exit_code == 0, found.ran.said
    assert found.ran.updates >= 3
    assert found.run.table("steps")["kind"].to_pylist().count("train") == found.ran.updates
    kept = (found.folder / "ran.json").stat().st_mtime_ns
    assert recorder.record(one.script, "form", arguments).ran == found.ran
    assert (found.folder / "ran.json").stat().st_mtime_ns == kept


def suggest(settings: dict[str, int | bool], change: str = "") -> Suggestion:
    return Suggestion("rule", "", "high", "", "", "", change, 1.0, 1.0, 1.0, (), settings)


def test_a_suggestion_is_followed_by_the_arguments_that_a_program_offers() -> None:
    loader = next(one.text for one in PLANTED if "--num-workers" in one.text)
    advised = suggest({"num_workers": 3, "in_order": False, "persistent_workers": True, "prefetch_factor": 4})
    assert follow(advised, loader) == (
        "--num-workers", "3", "--any-order", "--keep-workers", "--prefetch-factor", "4",
    )  # fmt: skip
    assert follow(advised, "print()") == ()
    assert follow(suggest({}, "model.float()"), loader) == ()
    threads = next(one.text for one in PLANTED if one.cause == "threads_over_cores")
    assert follow(suggest({}, "torch.set_num_threads(2)  # was 8"), threads) == ("--threads", "2")
