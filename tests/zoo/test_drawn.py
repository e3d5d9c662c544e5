"""Drawn programs: they give nothing away, the same seed draws the same ones, and they run in both forms."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from profiler_server.analysis.results import Suggestion
from tests.zoo.draw.choosing import Draw, draw_programs, list_plants, list_works
from tests.zoo.scoring.outcome import follow
from tests.zoo.scoring.peers import Shares, judge
from tests.zoo.scoring.recording import Recorder

DRAWN = draw_programs(7, 70, 25)
PLANTED = [one for one in DRAWN if one.cause]
OURS = ("collector", "profiler_server", "stepscope", "profiler")


def name_draw(one: Draw) -> str:
    return f"{one.script}-{one.cause or 'healthy'}"


def test_the_same_seed_draws_the_same_texts() -> None:
    assert draw_programs(7, 70, 25) == DRAWN
    texts = {one.text for one in DRAWN}
    assert len(texts) == len(DRAWN)
    assert not texts & {one.text for one in draw_programs(8, 70, 25)}


def test_all_plants_and_kinds_of_work_are_drawn() -> None:
    assert len(PLANTED) == 70
    assert {one.why for one in PLANTED} == {plant.why for plant in list_plants() if plant.cause}
    assert set(Counter(one.work for one in DRAWN)) == {work.key for work in list_works()}
    assert len({one.feed for one in DRAWN}) >= 8
    assert len({one.loop for one in DRAWN}) >= 7


@pytest.mark.parametrize("one", DRAWN, ids=name_draw)
def test_a_program_names_no_cause(one: Draw) -> None:
    # The name of a type is a word of every program that uses it.
    causes = {rule for plant in list_plants() for rule in (plant.cause, *plant.accept)} - {"", "float64"}
    text = one.text.lower()
    assert [word for word in causes if word in text or word.replace("_", " ") in text] == []
    assert [word for word in ("slow", "stall", "plant", *OURS) if word in text] == []


@pytest.mark.parametrize("one", DRAWN, ids=name_draw)
def test_a_program_can_be_parsed_and_uses_what_it_imports(one: Draw) -> None:
    tree = ast.parse(one.text)
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert imported - used == set()
    assert "$" not in one.text
    assert max(map(len, one.text.splitlines())) <= 120


@pytest.mark.parametrize("one", DRAWN, ids=name_draw)
def test_only_planted_programs_have_a_second_form(one: Draw) -> None:
    uses = len(re.findall(r"\bargs\.fixed\b", one.text))
    assert bool(uses) == bool(one.cause)


@pytest.mark.slow
@pytest.mark.parametrize("cause", ["no_workers", "worker_restart", "python_gap", "debug_modes"])
def test_a_drawn_program_is_recorded_in_both_forms(cause: str, tmp_path: Path) -> None:
    one = next(one for one in PLANTED if one.cause == cause)
    (tmp_path / f"{one.script}.py").write_text(one.text, "utf-8")
    recorder = Recorder(tmp_path, tmp_path / "kept", steps=6)
    for form, arguments in (("base", ()), ("fixed", ("--fixed",))):
        found = recorder.record(one.script, form, arguments)
        assert found.ran.exit_code == 0, found.ran.said
        assert found.ran.updates >= 3
        steps = found.run.table("steps")["kind"].to_pylist()
        assert steps.count("train") == found.ran.updates
    kept = (tmp_path / "kept" / one.script / "base" / "ran.json").stat().st_mtime_ns
    recorder.record(one.script, "base")
    assert (tmp_path / "kept" / one.script / "base" / "ran.json").stat().st_mtime_ns == kept


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


def test_published_thresholds_name_an_area() -> None:
    starved = Shares(loading=0.4, computing=0.5, outside=0.05, empty=0.9)
    assert set(judge(starved).values()) == {"input"}
    busy = Shares(loading=0.01, computing=0.95, outside=0.04, empty=0.0)
    assert judge(busy) == {"torch-tb-profiler": "", "MindInsight": "", "TraceML": "compute"}
    logging = Shares(loading=0.02, computing=0.6, outside=0.38, empty=None)
    assert judge(logging)["TraceML"] == "outside"
