"""Searching, sorting and paging the list of runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector.format.schema.errors import OptionError
from collector.format.schema.manifest import RunManifest
from profiler_server.store.headline import Headline, RunEntry
from profiler_server.store.run_query import RunQuery, select_runs


def entry(run_id: str, created: int, step_ns: float | None = 1.0, state: Any = "complete") -> RunEntry:
    manifest = RunManifest(run_id, run_id.split("/")[-1], created, 0, "collector", 1, "box", script="train.py")
    return RunEntry(run_id, Path(run_id), manifest, Headline(state, (0,), 3, step_ns, None))


RUNS = (entry("team/gpt-1", 1, 30.0), entry("cnn", 2, None), entry("GPT-2", 3, 10.0, "crashed"))


def choose(**query: Any) -> list[str]:
    return [run.id for run in select_runs(RUNS, RunQuery(**query)).runs]


def test_newest_first_by_default() -> None:
    assert choose() == ["GPT-2", "cnn", "team/gpt-1"]


def test_every_word_must_occur_in_any_case() -> None:
    assert choose(q="GpT") == ["GPT-2", "team/gpt-1"]
    assert choose(q="gpt TEAM") == ["team/gpt-1"]
    assert choose(q="absent") == []


def test_runs_without_the_value_come_last_either_way() -> None:
    assert choose(sort="step") == ["GPT-2", "team/gpt-1", "cnn"]
    assert choose(sort="-step") == ["team/gpt-1", "GPT-2", "cnn"]


def test_filters_by_state() -> None:
    assert choose(state="crashed") == ["GPT-2"]


def test_a_job_that_an_error_ended_has_failed() -> None:
    failed = replace(RUNS[1], headline=replace(RUNS[1].headline, has_failed=True))
    runs = (RUNS[0], failed, RUNS[2])
    assert [run.id for run in select_runs(runs, RunQuery(state="failed")).runs] == ["cnn"]
    assert [run.id for run in select_runs(runs, RunQuery(state="complete")).runs] == ["team/gpt-1"]


def test_a_page_past_the_end_is_the_last_page() -> None:
    found = select_runs(RUNS, RunQuery(page=99, page_size=2))
    assert (found.page, found.pages, found.total, len(found.runs)) == (2, 2, 3, 1)


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
