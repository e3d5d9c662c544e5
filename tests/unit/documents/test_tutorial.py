"""The tutorial: its diffs fit, and each step takes away the work that it says."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import collector
from collector import Run
from profiler_server.report import build_report
from tests.support import forking
from tests.support.tutorial import PAGE, PROGRAM, list_versions, record

STEPS = 20
"""One epoch. Advice needs two."""
ADVISED = (0, 2)


def test_the_program_is_short_and_five_diffs_fit() -> None:
    versions = list_versions()
    assert len(versions) == 6
    assert len(set(versions)) == 6
    assert len(PROGRAM.read_text("utf-8").splitlines()) <= 75
    assert "@" not in PAGE.read_text("utf-8").replace("stepscope@", "")


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Run]:
    """Return the run of a version of the program, recorded when it is first asked for. The first draws the pictures for all."""
    base: Path = tmp_path_factory.mktemp("tutorial")
    texts = list_versions()

    @cache
    def record_version(number: int) -> Run:
        folder = base / str(number)
        folder.mkdir()
        for leaves in [*base.glob("*/leaves")][:1]:
            (folder / "leaves").symlink_to(leaves)
        steps = 2 * STEPS if number in ADVISED else STEPS
        return collector.open_run(record(texts[number], folder, steps, forking.run))

    return record_version


def _count_calls(run: Run, name: str) -> float:
    frame = run.frame("operators")
    return float(frame[frame.name == name]["count"].sum())


@pytest.mark.slow
def test_anomaly_detection_is_named_and_gone_after_the_second_step(version: Callable[[int], Run]) -> None:
    named = [[suggestion.rule for suggestion in version(number).suggestions()] for number in ADVISED]
    assert ["debug_modes" in rules for rules in named] == [True, False]


@pytest.mark.slow
def test_workers_make_the_batches_after_the_first_step(version: Callable[[int], Run]) -> None:
    before, after = (version(number).rank().manifest.loaders[0].num_workers for number in (0, 1))
    assert (before, after) == (0, 2)


@pytest.mark.slow
def test_reading_takes_a_fraction_after_the_third_step(version: Callable[[int], Run]) -> None:
    before, after = (_measure_reading(version(number)) for number in (2, 3))
    assert after < before / 2


def _measure_reading(run: Run) -> float:
    """Return the processor time of reading a batch."""
    stages = run.frame("stages")
    return float(stages[stages.stage == "read"]["cpu_ns"].median())


@pytest.mark.slow
def test_the_loss_calls_few_operators_after_the_fifth_step(version: Callable[[int], Run]) -> None:
    before, after = (_count_calls(version(number), "aten::select") for number in (4, 5))
    assert after < before / 50


@pytest.mark.slow
def test_checkpoints_are_one_an_epoch_after_the_fourth_step(version: Callable[[int], Run]) -> None:
    before, after = (_count_checkpoints(version(number)) for number in (3, 4))
    assert before >= STEPS > 2 * after


def _count_checkpoints(run: Run) -> int:
    """Return the checkpoints of a run, which the report lists among its interruptions."""
    found = build_report(run)["ranks"][0]["interruptions"]
    return sum(int(each["count"]) for each in found if each["kind"] == "checkpoint")
