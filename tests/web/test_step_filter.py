"""The filter of steps: what the pages show of a range, and that no link loses it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collector.format.lens import StepRange
from collector.format.rank import read_step_rows
from collector.format.run import open_run
from tests.support.asking import Asker
from tests.support.runs import RunPlan, build_run
from tests.support.tables import make_inference

FOLLOWING = ("", "steps", "operators", "data", "data?tab=processing", "memory")
WHOLE = ("device", "ranks", "accounting", "timeline")


def with_steps(page: str, steps: str) -> str:
    return f"/runs/ranks/{page}{'&' if '?' in page else '?'}rank=1&steps={steps}"


@pytest.mark.parametrize("page", [*FOLLOWING, *WHOLE])
def test_no_link_to_another_page_of_the_run_loses_rank_or_steps(asker: Asker, page: str) -> None:
    answer = asker.ask(with_steps(page, "3-8"))
    assert answer.status_code == 200
    links = [link for link in re.findall(r'href="(/runs/ranks/[^"]*)"', answer.text) if "/window" not in link]
    assert len(links) >= 9
    assert [link for link in links if "rank=1" not in link and "rank=" not in link] == []
    keeping = [link for link in links if "steps=3-8" in link]
    # The one link that drops the filter is the one that says so.
    assert {link for link in links if link not in keeping} <= {
        link for link in links if "steps=" not in link and link.startswith(f"/runs/ranks/{page.partition('?')[0]}?")
    }


@pytest.mark.parametrize("page", FOLLOWING)
def test_a_page_says_which_steps_it_shows(asker: Asker, page: str) -> None:
    text = asker.ask(with_steps(page, "8-3")).text
    assert "Only steps <b>3–8</b> of 1–14" in text
    assert 'value="3-8"' in text


@pytest.mark.parametrize("page", WHOLE)
def test_a_page_that_shows_the_whole_run_says_so(asker: Asker, page: str) -> None:
    assert "This page shows the whole run." in asker.ask(with_steps(page, "3-8")).text


def test_figures_are_those_of_the_range(tmp_path: Path) -> None:
    build_run(tmp_path / "run", RunPlan(steps=60))
    asker = Asker(tmp_path)
    overall = asker.ask("/runs/run/?steps=20-29").text
    assert "10 steps recorded" in overall
    assert "Nothing of the operators was recorded in the chosen steps, 20-29." in overall
    steps = asker.ask("/runs/run/steps?steps=20-29").text
    assert "The average covers all 10 steps." in steps
    data = asker.ask("/runs/run/data?steps=20-29").text
    assert "of 10 requests" in data
    assert "Means are over steps 20–29." in data


@pytest.mark.parametrize("text", ["x", "5-", "900-950", "%3Cscript%3E", "9" * 50])
def test_a_range_that_cannot_be_shown_is_told_once_and_dropped(asker: Asker, text: str) -> None:
    answer = asker.ask(f"/runs/healthy/steps?steps={text}")
    assert answer.status_code == 200
    assert answer.text.count("All steps are shown.") == 1
    assert "<script>alert" not in answer.text
    assert "steps=" not in re.sub(r'name="steps"', "", answer.text.split("<nav")[1].split("</nav>")[0])


def test_a_run_without_a_step_has_none_to_choose_from(tmp_path: Path) -> None:
    build_run(tmp_path / "run", RunPlan(steps=0))
    answer = Asker(tmp_path).ask("/runs/run/steps?steps=1-3")
    assert answer.status_code == 200
    assert "no steps to choose from" in answer.text


def build_inference(path: Path, ranks: int = 1) -> Asker:
    build_run(path / "run", RunPlan(steps=60, ranks=ranks, operators=False))
    make_inference(path / "run")
    return Asker(path)


@pytest.mark.parametrize("page", FOLLOWING)
def test_batches_of_a_run_that_only_infers_are_chosen_as_steps_are(tmp_path: Path, page: str) -> None:
    text = build_inference(tmp_path).ask(f"/runs/run/{page}{'&' if '?' in page else '?'}steps=20-29").text
    assert "Only batches <b>20–29</b> of 1–60" in text
    assert ">Batches</label>" in text
    assert "Show all batches" in text


def test_figures_are_those_of_the_chosen_batches(tmp_path: Path) -> None:
    asker = build_inference(tmp_path)
    assert "10 batches recorded" in asker.ask("/runs/run/?steps=20-29").text
    assert "The average covers all 10 batches." in asker.ask("/runs/run/steps?steps=20-29").text
    data = asker.ask("/runs/run/data?steps=20-29").text
    assert "of 10 requests" in data
    assert "Means are over batches 20–29." in data


def test_a_batch_keeps_its_number_in_a_chosen_range(tmp_path: Path) -> None:
    build_inference(tmp_path)
    rank = open_run(tmp_path / "run").rank()
    rows = read_step_rows(rank.through(StepRange(28, 33)))
    assert rows.noun == "batch"
    assert rows.steps["step"].to_pylist() == [28, 29, 30, 31, 32, 33]
    whole = read_step_rows(rank).steps.slice(27, 6)
    assert rows.steps["start_ns"].to_pylist() == whole["start_ns"].to_pylist()
    for table in ("phases", "fetches"):
        found = rank.through(StepRange(28, 33)).table(table)
        assert set(found["index"].to_pylist()) == set(whole["index"].to_pylist()), table


@pytest.mark.parametrize(("steps", "why"), [("x", "no range of batches"), ("900", "there are batches 1 to 60")])
def test_batches_that_are_not_there_are_told(tmp_path: Path, steps: str, why: str) -> None:
    text = build_inference(tmp_path).ask(f"/runs/run/data?steps={steps}").text
    assert why in text
    assert "All batches are shown." in text


def test_ranks_of_a_run_that_only_infers_are_compared_by_their_batches(tmp_path: Path) -> None:
    text = build_inference(tmp_path, ranks=3).ask("/runs/run/ranks").text
    assert "Mean batch" in text
    assert "Own work, batch by batch" in text
    assert "cannot be told" in text
    main = text.split('id="content"')[1]
    assert re.findall(r"(?i)\btraining step\b|\bmean step\b|\bthe step\b", main) == []


@pytest.mark.parametrize("wait_ms", [0.04, 3.357, 17.77, 96.0, 144.449])
def test_the_share_of_the_wait_reads_the_same_on_every_page(tmp_path: Path, wait_ms: float) -> None:
    phases = {"gap": 0.313, "data_wait": wait_ms, "h2d": 0.549, "forward": 20.111, "backward": 36.0, "tail": 1.07}
    build_run(tmp_path / "run", RunPlan(steps=60, phases_ms=phases))
    asker = Asker(tmp_path)
    card = re.search(r"Data wait</span>\s*<span class=\"stat-value\">([^<]+)<", asker.ask("/runs/run/").text)
    part = re.search(r">Data wait</a>.*?class=\"muted\">([^<]+)<", asker.ask("/runs/run/").text, re.DOTALL)
    row = re.search(r"Data wait</th>.*?num strong.*?num\">([^<]+)<", asker.ask("/runs/run/steps").text, re.DOTALL)
    data = re.search(r"([\d.]+ %) of the step", asker.ask("/runs/run/data").text)
    assert card
    assert part
    assert row
    assert data
    shown = {float(found[1].removesuffix(" %")) for found in (card, part, row, data)}
    assert max(shown) - min(shown) < 0.051  # below 0.1 % a figure that stands alone has one digit more
    if wait_ms > 1:
        assert len(shown) == 1, shown
