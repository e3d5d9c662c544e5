"""The run list says the same of a run as its pages; searching, sorting and paging it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector import open_run
from collector.format.schema import layout
from collector.format.schema.errors import OptionError
from collector.format.schema.manifest import RunManifest
from collector.format.steps import summarize_phases, summarize_steps
from collector.traces.importing import import_trace
from profiler_server.analysis.ranks.ending import find_end
from profiler_server.format import ABSENT
from profiler_server.pages.data.facts import PipelineFacts
from profiler_server.pages.data.interval import build_interval
from profiler_server.store.headline import Headline, RunEntry, read_headline
from profiler_server.store.run_query import RunQuery, select_runs
from tests.support.live import edit_rank
from tests.support.runs import RunPlan, build_run, slow_loader_plan
from tests.support.tables import make_inference
from tests.support.traces import operator, step, write_trace


@pytest.mark.parametrize("plan", [RunPlan(), RunPlan(steps=200), slow_loader_plan("read")])
def test_the_run_list_averages_the_steps_that_the_pages_average(tmp_path: Path, plan: RunPlan) -> None:
    run = open_run(build_run(tmp_path / "run", plan))
    steps = run.table("steps")
    spread = summarize_steps(steps).duration_ns
    wait = next(phase.share_frac for phase in summarize_phases(steps) if phase.name == "data_wait")
    assert spread is not None
    headline = read_headline(run)
    assert (headline.steps, headline.step_p50_ns) == (plan.steps, spread.p50)
    assert headline.data_wait_frac == pytest.approx(wait)


def test_batches_are_counted_as_the_steps_of_a_run_that_only_infers(tmp_path: Path) -> None:
    headline = read_headline(open_run(make_inference(build_run(tmp_path / "run", RunPlan(operators=False)))))
    assert (headline.steps, headline.noun) == (40, "batch")
    assert headline.step_p50_ns is not None
    assert headline.data_wait_frac is not None


def test_a_damaged_manifest_of_one_rank_does_not_make_the_run_a_crashed_one(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run", RunPlan(ranks=3))
    layout.rank_file(path, 2).write_bytes(b"x" * 40)
    assert read_headline(open_run(path)).state == "complete"


@pytest.mark.parametrize(
    ("ranks", "by", "expected"),
    [
        (2, "RuntimeError: planted", "failed"),
        (1, "SystemExit: 3", "failed"),
        (1, "KeyboardInterrupt", "complete"),
        (2, "KeyboardInterrupt", "failed"),
        (1, "exit", "complete"),
        (1, 7, "complete"),
    ],
)
def test_a_job_that_an_error_ended_has_failed(tmp_path: Path, ranks: int, by: object, expected: str) -> None:
    path = build_run(tmp_path / "run", RunPlan(ranks=ranks, operators=False))
    edit_rank(path, ranks - 1, facts={"ended_by": by})
    headline = read_headline(open_run(path))
    assert (headline.shown_state, headline.state) == (expected, "complete")
    assert (expected == "failed") == (find_end(open_run(path)) is not None)


def test_a_trace_without_a_call_of_a_dataloader_does_not_tell_the_waits(tmp_path: Path) -> None:
    silent = [step(1, 0, 9000), operator("aten::mm", 100, 800), step(2, 9000, 9000), operator("aten::mm", 9100, 800)]
    loading = operator("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 20, 60)
    for name, events, tells in (("silent", silent, False), ("loading", [*silent, loading], True)):
        run = import_trace(write_trace(tmp_path / f"{name}.json", events), tmp_path / name)
        assert (read_headline(run).data_wait_frac is not None) == tells
        facts = PipelineFacts(run.rank(), None)
        view = build_interval(facts, with_pipeline=False)
        wait = next(figure for figure in view.figures if figure.label == "Wait for batch")
        assert (wait.value != ABSENT) == tells
        assert (view.verdict.title == "The waits for data are not known") == (not tells)


def entry(run_id: str, created: int, step_ns: float | None = 1.0, state: Any = "complete") -> RunEntry:
    manifest = RunManifest(run_id, run_id.split("/")[-1], created, 0, "collector", 1, "box", script="train.py")
    return RunEntry(run_id, Path(run_id), manifest, Headline(state, (0,), 3, step_ns, None))


RUNS = (entry("team/gpt-1", 1, 30.0), entry("cnn", 2, None), entry("GPT-2", 3, 10.0, "crashed"))


def choose(**query: Any) -> list[str]:
    return [run.id for run in select_runs(RUNS, RunQuery(**query)).runs]


def test_every_word_must_occur_in_any_case() -> None:
    assert choose(q="GpT") == ["GPT-2", "team/gpt-1"]
    assert choose(q="gpt TEAM") == ["team/gpt-1"]
    assert choose(q="absent") == []


def test_runs_without_the_value_come_last_either_way() -> None:
    assert choose(sort="step") == ["GPT-2", "team/gpt-1", "cnn"]
    assert choose(sort="-step") == ["team/gpt-1", "GPT-2", "cnn"]


def test_a_failed_job_is_chosen_by_that_state() -> None:
    failed = replace(RUNS[1], headline=replace(RUNS[1].headline, has_failed=True))
    runs = (RUNS[0], failed, RUNS[2])
    assert [run.id for run in select_runs(runs, RunQuery(state="failed")).runs] == ["cnn"]
    assert [run.id for run in select_runs(runs, RunQuery(state="complete")).runs] == ["team/gpt-1"]


@pytest.mark.parametrize(
    "query",
    [{"sort": "size"}, {"sort": "--when"}, {"state": "asleep"}, {"page": 0}, {"page_size": 0}, {"page_size": 501}],
)
def test_an_unknown_value_is_refused(query: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        RunQuery(**query)


def test_a_run_that_is_not_read_yet_has_no_state_and_no_figure_to_sort_by() -> None:
    unread = replace(entry("new", 9, 99.0), is_read=False)
    runs = (unread, *RUNS)
    assert [run.id for run in select_runs(runs, RunQuery(state="complete")).runs] == ["cnn", "team/gpt-1"]
    assert [run.id for run in select_runs(runs, RunQuery(sort="-steps")).runs][-1] == "new"
    assert select_runs(runs, RunQuery()).runs[0].id == "new"
