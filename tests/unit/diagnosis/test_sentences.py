"""The sentences of the verdict and of the rules: one base for every figure, and nothing that cannot be."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import Run, open_run
from collector.format.schema.manifest import Warn
from collector.format.steps import summarize_steps
from profiler_server.diagnosis.judging import diagnose, judge
from profiler_server.diagnosis.measuring import measure_case
from profiler_server.diagnosis.verdict import find_bound, say_limit
from profiler_server.facts.machine import HostWaits
from profiler_server.facts.results import Diagnosis
from profiler_server.format import format_duration, format_share
from profiler_server.page import PageRequest
from profiler_server.pages import data, overall
from profiler_server.report.brief import write_brief
from tests.support.asking import Asker
from tests.support.cases import PLANTED, Plant, build_case_run, plan_of
from tests.support.diagnosing import measure
from tests.support.facts import find, with_device, with_load, with_loading, with_manifest, with_share
from tests.support.live import edit_rank
from tests.support.row_edits import Row, begin_epochs, compute_all, cpu_cores, queued
from tests.support.runs import MS, RunPlan, build_run, slow_loader_plan
from tests.support.tables import make_inference

PART = re.compile(r"(\d[\d.,]* (?:ns|µs|ms|s)) of (\d[\d.,]* (?:ns|µs|ms|s))\b")


def list_texts(found: Diagnosis) -> list[str]:
    return [found.sentence, *(text for entry in found.suggestions for text in (entry.measured, entry.threshold))]


def find_mean(run: Run) -> str:
    times = summarize_steps(run.rank().table("steps")).duration_ns
    assert times is not None
    return format_duration(times.mean)


def forget_some(steps: list[dict[str, object]]) -> None:
    """Spend 30 ms before each batch, and 200 ms in one step of ten; start an epoch of 25 steps with a long wait."""
    for at, step in enumerate(steps):
        step["gap_ns"] = (200 if at % 10 == 7 else 30) * MS
        step["batch"] = at % 25
        if at % 25 == 0:
            step["data_wait_ns"] = 90 * MS


def test_time_outside_of_training_is_told_of_the_mean_step_on_every_page(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", Plant(plan_of(), edit=forget_some))
    found = diagnose(run, 0)
    said = next(entry for entry in found.suggestions if entry.rule == "python_gap")
    parts = set(PART.findall(" ".join(list_texts(found))))
    assert {base for _, base in parts} == {find_mean(run)}
    times = run.rank().table("steps").to_pandas().query("~detailed")
    share = format_share((times.gap_ns + times.tail_ns).mean() / times.duration_ns.mean())
    assert f"({share}) are spent outside of loading, preparing the batch" in said.measured
    page = Asker(tmp_path).ask("/runs/run/").text
    assert {base for _, base in PART.findall(re.sub(r"<[^>]+>", "", page))} == {find_mean(run)}


def test_a_run_that_only_infers_is_judged_by_its_batches(tmp_path: Path) -> None:
    build_run(tmp_path / "run", slow_loader_plan("read"))
    make_inference(tmp_path / "run")
    found = diagnose(open_run(tmp_path / "run"), 0)
    texts = [*list_texts(found), found.bound_by.confidence]
    assert "the batch waits" in found.sentence
    assert [text for text in texts if re.search(r"\bsteps?\b", text)] == []


def test_a_short_run_that_only_infers_tells_how_many_batches_advice_needs(tmp_path: Path) -> None:
    build_run(tmp_path / "run", RunPlan(steps=9))
    make_inference(tmp_path / "run")
    found = diagnose(open_run(tmp_path / "run"), 0)
    assert "are spent in the forward" in found.sentence
    assert "Only 8 steady batches were recorded" in found.sentence  # the first one starts the loader
    assert [entry.missing for entry in found.abstained if "step" in f"{entry.missing} {entry.how}"] == []


def test_the_reading_of_a_window_is_named_if_it_leaves_too_few_steps(tmp_path: Path) -> None:
    build_run(tmp_path / "run", RunPlan(steps=60))
    rank = open_run(tmp_path / "run").rank()
    start_ns = rank.table("steps")["start_ns"].to_pylist()
    (window,) = rank.manifest.windows
    edit_rank(tmp_path / "run", windows=(replace(window, read_start_ns=start_ns[13], read_end_ns=start_ns[52]),))
    found = diagnose(open_run(tmp_path / "run"), 0)
    why = "39 of 60 steps lie beside the reading of a detailed window. `window=None` keeps them."
    assert why in found.sentence
    assert [entry.how for entry in found.abstained if entry.rule == "all"] == [why]


def test_an_idle_device_is_not_said_to_be_busy_between_its_kernels_and_idle_at_once(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", Plant(plan_of()))
    case = measure(run)
    case = with_device(case, busy=0.5)
    assert case.device.summary is not None
    tight = replace(case.device.summary, idle_ns=2_000, total_ns=1_000_000)
    for total, said in ((case.device.summary, "50.0 % of the step"), (tight, "before its first kernel or after")):
        told = judge(replace(case, device=replace(case.device, summary=total, dispatch_frac=0.01))).sentence
        assert said in told
        assert ("idle 0.2 %" in told) is False


@pytest.mark.parametrize(("queued", "workers", "said"), [(0.2, 1.5, True), (0.05, 1.5, False), (0.2, 0.0, False)])
def test_a_step_that_computes_names_the_workers_that_it_queues_behind(
    queued: float, workers: float, said: bool, tmp_path: Path
) -> None:
    run = build_case_run(tmp_path / "run", Plant(plan_of(2)))
    case = measure(run)
    case = with_load(case, queued_frac=queued, workers=workers, others=0.5)
    text = say_limit(case, find_bound(case))
    queue = f"with {format_duration(queued * case.steps.mean_ns)} of the step in the queue for processors"
    assert (queue in text) is said
    assert "the loader keeps up" in text


@pytest.mark.parametrize("h2d", [0.5, 20.0])
def test_verdict_and_rule_give_one_share_of_the_time_outside_of_training(h2d: float, tmp_path: Path) -> None:
    found = diagnose(build_case_run(tmp_path / "run", Plant(plan_of(tail=60.0, h2d=h2d))), 0)
    said = next(entry for entry in found.suggestions if entry.rule == "python_gap").measured
    shares = [
        re.findall(r"\(([\d.]+ %)\) are spent outside of loading, (\w+)", text)[0] for text in (found.sentence, said)
    ]
    # Another share has other words: what counts as outside is named.
    assert (shares[0] == shares[1]) == (h2d < 1.0)
    assert shares[0] == shares[1] or shares[0][1] != shares[1][1]


@pytest.mark.parametrize(("queued_frac", "is_starved"), [(0.24, False), (0.26, True), (0.8, True)])
@pytest.mark.parametrize("tail", [2.0, 60.0])
def test_a_thread_that_queues_for_a_processor_is_starved_of_them(
    tail: float, queued_frac: float, is_starved: bool, tmp_path: Path
) -> None:
    case = measure(build_case_run(tmp_path / "run", Plant(plan_of(tail=tail))))
    case = with_load(case, queued_frac=queued_frac, workers=0.0, others=1.5)
    bound = find_bound(case)
    assert (bound.kind == "processor") is is_starved
    assert (
        say_limit(case, bound).startswith("Starved of processors: the recorded thread waits for a free one")
        is is_starved
    )
    assert ("Other programs use 1.5 of" in say_limit(case, bound)) is is_starved


def test_a_thread_that_makes_its_own_batches_is_starved_of_processors_too(tmp_path: Path) -> None:
    case = with_load(measure(build_case_run(tmp_path / "run", PLANTED["no_workers"])), workers=0.0, others=1.5)
    assert find_bound(case).kind == "input"
    starved = with_load(case, queued_frac=0.8)
    start = "Starved of processors: the recorded thread waits for a free one 80.0 % of the time"
    assert say_limit(starved, find_bound(starved)).startswith(start)


def test_a_device_is_not_starved_while_the_host_queues(tmp_path: Path) -> None:
    case = with_device(measure(build_case_run(tmp_path / "run", Plant(plan_of()))), busy=0.9)
    assert find_bound(with_load(case, queued_frac=0.8)).kind == "compute"


def test_every_face_begins_with_starvation(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", Plant(plan_of(), tables={"resources": queued(0.2, 2.0, 0.8)}))
    start = "Starved of processors: the recorded thread waits for a free one 80.0 % of the time"
    assert write_brief(run)[0].startswith(start)  # the terminal prints this, too
    assert diagnose(run, 0).sentence.startswith(start)


def test_what_precedes_and_follows_all_kernels_is_no_step_where_none_is_marked(tmp_path: Path) -> None:
    case = with_device(measure(build_case_run(tmp_path / "run", Plant(plan_of()))), busy=0.5)
    assert case.device.summary is not None
    tight = replace(case.device.summary, idle_ns=2_000, total_ns=1_000_000, steps_ns=2_000_000)
    case = replace(case, device=replace(case.device, summary=tight, dispatch_frac=0.01))
    assert judge(case).sentence.startswith("Overhead-bound")
    unmarked = with_manifest(case, warnings=(Warn("trace_without_steps", ""),))
    assert judge(unmarked).sentence.startswith(
        "Compute-bound: from its first to its last kernel, the device is busy 99.8 % of the time."
    )


def test_a_device_that_idles_around_no_marked_step_leaves_the_bound_unknown(tmp_path: Path) -> None:
    case = with_device(measure(build_case_run(tmp_path / "run", Plant(plan_of()))), busy=0.2, host_wait=1.0)
    case = with_manifest(case, warnings=(Warn("trace_without_steps", ""),))
    found = judge(replace(case, device=replace(case.device, dispatch_frac=0.01)))
    assert found.bound_by.kind == "unknown"
    assert found.limit.startswith(
        "What bounds a step is unknown: the trace marks no steps. The device is idle for 80.0 %"
    )


def test_a_wait_beside_a_device_names_the_functions_that_the_device_waits_for(tmp_path: Path) -> None:
    case = with_device(measure(build_case_run(tmp_path / "run", Plant(plan_of(workers=0, data_wait=60.0)))), busy=0.3)
    waits = HostWaits(50e6, 100e6, (("<built-in function zoom_shift>", 40e6), ("aten::add", 1e6)))
    found = judge(replace(case, device=replace(case.device, host_waits=waits)))
    assert found.bound_by.kind == "input"
    said = "The device waits 50.0 ms of a step (50.0 %) for work of the host: zoom_shift() 40.0 ms."
    assert said in found.limit


def test_preparing_without_a_loader_is_told_without_one(tmp_path: Path) -> None:
    """There is neither a dataset nor a collate function to move it to."""
    case = with_share(measure(build_case_run(tmp_path / "run", PLANTED["serial_copy"])), "h2d", 0.3)
    assert "default_collate" in find(case, "serial_copy").text.change
    own = find(with_loading(case, loader=None), "serial_copy").text
    assert "collate" not in f"{own.advice} {own.change}"
    assert "the process that makes the batches" in own.change


def read_page(run: Run) -> Any:
    return data.PAGE.build(PageRequest(run, "run", 0, (0,), {})).interval


def queue_for_a_core(share: float) -> list[Row]:
    rows = cpu_cores(process=0.5, system=2.0, count=100)
    waits = [{**row, "metric": "run_queue_frac", "value": share} for row in rows if row["source"] == "process"]
    return [*rows, *waits]


def compute_and_rest(stages: list[Row]) -> None:
    compute_all(stages)
    for row in stages[: len(stages) // 2]:
        row["start_ns"] -= 8_000 * MS


@pytest.mark.parametrize("depths", [(4, 4, 4, 3), (0, 4, 0, 3)])
def test_waits_at_the_starts_of_epochs_are_called_so_on_every_page(depths: tuple[int, ...], tmp_path: Path) -> None:
    plan = plan_of(2, depths, data_wait=0.4)
    tables = {"resources": queue_for_a_core(0.5)}
    plant = Plant(plan, edit=begin_epochs(10, wait_ms=400.0, start_ms=300.0), tables=tables)
    run = build_case_run(tmp_path / "run", plant)
    diagnosis, view = diagnose(run, 0), read_page(run)
    card = overall.PAGE.build(PageRequest(run, "run", 0, (0,), {})).data_card.body
    assert diagnosis.bound_by.kind == "input"
    assert view.verdict.title == "The starts of epochs wait for data"
    assert "Limited by the starts of epochs" not in [reading.title for reading in view.readings]  # it stands above
    for text in (diagnosis.sentence, view.verdict.text, card.sentence):
        assert "Most of the wait is in the first steps of epochs" in text
        assert "Batches are ready" not in text
        assert "free processor" not in text


@pytest.mark.parametrize("wait_ms", [4.0, 8.0, 40.0])
def test_no_page_calls_it_input_bound_and_none_says_that_nothing_waits(wait_ms: float, tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", Plant(plan_of(2, (4, 4, 4, 3), data_wait=wait_ms)))
    view = read_page(run)
    assert "nput-bound" not in view.verdict.title
    assert [reading.title for reading in view.readings if reading.tone == "good"] == []
    assert view.verdict.tone in ("watch", "bad")


@pytest.mark.parametrize("read_ms", [8.0, 80.0])
def test_the_verdict_and_the_pages_name_the_same_limit_of_busy_workers(read_ms: float, tmp_path: Path) -> None:
    """The workers rest between the epochs, so that over the whole run they are less busy than in the steps."""
    plan = replace(plan_of(2, (4, 4, 4, 3), data_wait=16.0), read_ms=read_ms, transform_ms=60.0)
    tables = {"resources": queue_for_a_core(0.6)}
    run = build_case_run(tmp_path / "run", Plant(plan, edit_stages=compute_and_rest, tables=tables))
    case = measure_case(run, run.rank(0))
    page = data.PAGE.build(PageRequest(run, "run", 0, (0,), {})).interval
    card = overall.PAGE.build(PageRequest(run, "run", 0, (0,), {})).data_card.body
    assert case is not None
    reason = case.loading.bottleneck.reason
    assert card.sentence == reason
    assert [reason in reading.text for reading in (page.verdict, *page.readings)].count(True) == 1


IN_MEMORY = plan_of(0, data_wait=0.352, h2d=0.0, forward=0.6, backward=0.0, optimizer=0.05, tail=0.0, gap=0.0)


def plant(read_ms: float, collate_ms: float) -> Plant:
    timed = replace(IN_MEMORY, read_ms=read_ms, transform_ms=0.0, collate_ms=collate_ms)
    return Plant(timed, edit_stages=lambda rows: rows.__setitem__(slice(None), [r for r in rows if r["duration_ns"]]))
