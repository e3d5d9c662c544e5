"""The time of all attempts of a job: steps that were kept, steps that were repeated, and what took the rest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from collector.format.attempts import list_attempts
from collector.format.schema import layout
from profiler_server.analysis.steps.job_time import measure_job_time
from profiler_server.diagnosis.end_sentences import say_job_time
from profiler_server.facts.useful import JobTime
from tests.support.live import edit_rank, edit_run
from tests.support.runs import EPOCH_UNIX_NS, MS, RunPlan, build_run, build_steps
from tests.support.tables import make_inference, remove_tables, write_rows

S = 1_000 * MS
LONG_S, GAP_S = 10, 3
"""An attempt lasts ten seconds, of which the first is its start; the next attempt begins three seconds later."""


@dataclass(frozen=True)
class Tried:
    """An attempt with so many steps. `before` is what its optimizer had counted; None if it does not count."""

    steps: int
    before: int | None = 0
    saves: bool = False
    ranks: int = 1
    updates: int = 1


def build_job(path: Path, *tried: Tried) -> Path:
    for number, attempt in enumerate(tried, 1):
        is_last = number == len(tried)
        _build(path if is_last else path / layout.EARLIER_FOLDER / f"20261123-10000{number}", number, attempt)
    return path


def _build(place: Path, number: int, tried: Tried) -> None:
    build_run(place, RunPlan(tried.steps, ranks=tried.ranks, operators=False))
    epoch_ns = EPOCH_UNIX_NS + (number - 1) * (LONG_S + GAP_S) * S
    edit_run(place, job_id="id", attempt=number, epoch_unix_ns=epoch_ns, created_unix_ns=epoch_ns)
    facts: dict[str, Any] = {"updates_before": tried.before, "optimizers": [{"name": "Adam"}]}
    for rank in range(tried.ranks):
        edit_rank(place, rank, facts=facts, started_unix_ns=epoch_ns, ended_unix_ns=epoch_ns + LONG_S * S)
    rows = [{**row, "optimizer_steps": tried.updates} for row in build_steps(RunPlan(tried.steps))]
    write_rows(place, "steps", rows)
    if tried.saves:
        save = {"id": 0, "name": "torch.save", "path": "torch.save", "thread_id": 1, "process": 1, "failed": False}
        save |= {"training": True, "start_ns": rows[0]["start_ns"], "duration_ns": 10 * MS}
        write_rows(place, "ranges", [save])


def measure(path: Path, *tried: Tried) -> JobTime:
    found = measure_job_time(list_attempts(build_job(path, *tried)))
    assert found is not None
    return found


def sum_steps(*spans: tuple[int, int]) -> int:
    """Return the time of steps, each span from and to a number, both included."""
    rows = build_steps(RunPlan(60))
    return sum(row["duration_ns"] for first, last in spans for row in rows[first - 1 : last])


def test_steps_after_the_update_at_which_the_next_attempt_went_on_were_repeated(tmp_path: Path) -> None:
    found = measure(tmp_path, Tried(33, saves=True), Tried(32, 20, saves=True), Tried(20, 40))
    assert found.unknown == ()
    assert found.repeated_steps == 13 + 12
    kept_ns = sum_steps((1, 20), (1, 20), (1, 20)) - 2 * 10 * MS
    assert found.kept_low_ns == found.kept_high_ns == kept_ns
    assert found.steps_ns == sum_steps((1, 33), (1, 32), (1, 20)) - 2 * 10 * MS
    assert (found.saving_ns, found.evaluation_ns) == (2 * 10 * MS, 0)
    assert (found.start_up_ns, found.between_ns) == (3 * S, 2 * GAP_S * S)
    assert found.total_ns == (3 * LONG_S + 2 * GAP_S) * S
    parts = found.steps_ns + found.saving_ns + found.start_up_ns + found.between_ns + found.other_ns
    assert parts == found.total_ns
    assert found.useful_low_frac == pytest.approx(kept_ns / found.total_ns)


def test_an_attempt_that_goes_back_further_repeats_steps_of_all_attempts_before(tmp_path: Path) -> None:
    found = measure(tmp_path, Tried(30), Tried(10, 30), Tried(50, 10))
    assert found.repeated_steps == 20 + 10
    assert found.kept_low_ns == sum_steps((1, 10), (1, 50))


def test_all_is_repeated_where_the_optimizer_is_new_and_nothing_was_saved(tmp_path: Path) -> None:
    found = measure(tmp_path, Tried(30), Tried(40, 0))
    assert (found.repeated_steps, found.unknown) == (30, ())
    assert found.kept_high_ns == sum_steps((1, 40))


@pytest.mark.parametrize(
    "tried",
    [
        pytest.param((Tried(30, None), Tried(40, None)), id="an optimizer that does not count, such as SGD"),
        pytest.param((Tried(30, saves=True), Tried(40, 0)), id="the model alone may have been loaded"),
        pytest.param((Tried(30), Tried(40, 90)), id="more updates than the steps before can have made"),
        pytest.param((Tried(30, updates=6), Tried(40, 20, updates=6)), id="several updates of one optimizer in a step"),
    ],
)
def test_the_bounds_are_all_and_nothing_where_an_attempt_does_not_show_where_it_went_on(
    tried: tuple[Tried, ...], tmp_path: Path
) -> None:
    found = measure(tmp_path, *tried)
    saved_ns = 10 * MS * sum(one.saves for one in tried)
    assert (found.unknown, found.repeated_steps) == ((2,), None)
    assert found.kept_low_ns == sum_steps((1, 40))
    assert found.kept_high_ns == sum_steps((1, 30), (1, 40)) - saved_ns == found.steps_ns
    assert "between " in say_job_time(found)


def test_updates_that_a_gradient_scaler_skipped_do_not_count(tmp_path: Path) -> None:
    path = build_job(tmp_path, Tried(30), Tried(40, 20))
    (first, _) = list_attempts(path)
    rows = [{**row, "skipped_updates": int(row["step"] <= 2)} for row in build_steps(RunPlan(30))]
    write_rows(first.path, "steps", rows)
    found = measure_job_time(list_attempts(path))
    assert found is not None
    assert found.repeated_steps == 8


@pytest.mark.parametrize("has_table", [True, False])
def test_the_time_of_an_attempt_without_a_step_is_start_up(tmp_path: Path, has_table: bool) -> None:
    path = build_job(tmp_path, Tried(30), Tried(0), Tried(40, 30))
    if not has_table:
        remove_tables(list_attempts(path)[1].path, "steps")
    found = measure_job_time(list_attempts(path))
    assert found is not None
    assert (found.repeated_steps, found.unknown) == (0, ())
    assert found.start_up_ns == (1 + LONG_S + 1) * S


def test_attempts_may_have_different_numbers_of_ranks(tmp_path: Path) -> None:
    found = measure(tmp_path, Tried(30, ranks=4), Tried(40, 20, ranks=2))
    assert found.repeated_steps == 10
    assert found.total_ns == (2 * LONG_S + GAP_S) * S


def test_evaluation_after_the_first_step_has_a_time_of_its_own(tmp_path: Path) -> None:
    path = build_job(tmp_path, Tried(30), Tried(40, 30))
    rows = build_steps(RunPlan(40))
    write_rows(path, "steps", [*rows[:-2], *({**row, "kind": "eval"} for row in rows[-2:])])
    found = measure_job_time(list_attempts(path))
    assert found is not None
    assert found.evaluation_ns == sum_steps((39, 40))


def test_time_is_counted_once_where_clocks_let_attempts_overlap(tmp_path: Path) -> None:
    path = build_job(tmp_path, Tried(30), Tried(40, 30))
    (first, _) = list_attempts(path)
    edit_rank(first.path, ended_unix_ns=EPOCH_UNIX_NS + (LONG_S + GAP_S + 1) * S)
    found = measure_job_time(list_attempts(path))
    assert found is not None
    assert (found.between_ns, found.start_up_ns) == (0, 1 * S)
    assert found.total_ns == (2 * LONG_S + GAP_S) * S


def test_nothing_is_measured_of_one_attempt_or_without_a_training_step_or_with_damaged_steps(tmp_path: Path) -> None:
    assert measure_job_time(list_attempts(build_job(tmp_path / "one", Tried(30)))) is None
    assert measure_job_time(list_attempts(build_job(tmp_path / "none", Tried(0), Tried(0)))) is None
    inferring = build_job(tmp_path / "infers", Tried(0), Tried(30))
    assert measure_job_time(list_attempts(make_inference(inferring))) is None
    damaged = build_job(tmp_path / "damaged", Tried(30), Tried(40, 20))
    layout.table_file(layout.rank_path(damaged, 0), "steps").write_bytes(b"PAR1")
    assert measure_job_time(list_attempts(damaged)) is None


def test_the_sentence_lists_the_rest_from_the_largest_part_on(tmp_path: Path) -> None:
    said = say_job_time(measure(tmp_path, Tried(33), Tried(40, 20)))
    assert said == (
        "Useful time of the job: 16.7 % of 23.0 s were steps that no later attempt repeated. The rest: other time 57.9 %, "
        "between attempts 13.0 %, start-up 8.7 %, 13 repeated steps 3.6 %."
    )
    assert say_job_time(None) == ""
