"""The list of runs as a page and as data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collector.format.schema import layout
from profiler_server.web.routes import run_list
from tests.support.asking import Asker
from tests.support.live import edit_rank, edit_run
from tests.support.runs import RunPlan, build_run
from tests.support.waiting import wait_for


def test_an_empty_base_shows_how_to_record_a_run(tmp_path: Path) -> None:
    text = Asker(tmp_path).ask("/").text
    assert "No run here yet" in text
    assert "from stepscope import Profiler" in text
    assert f"stepscope demo --summary-base-dir {tmp_path}" in text


def test_lists_names_states_and_figures(asker: Asker) -> None:
    # A busy machine reads fewer runs in the first look.
    text = wait_for(lambda: "" if "still being read" in (text := asker.ask("/").text) else text)
    for words in ("healthy", "team/slow", "Crashed", "160 ms", "60.2 %"):
        assert words in text


def test_search_state_and_paging_are_in_the_address(asker: Asker) -> None:
    assert "team/slow" not in asker.ask("/?state=crashed").text
    assert "No run matches" in asker.ask("/?q=absent").text
    second = asker.ask("/?page_size=3&page=2").text
    assert "Page 2 of 2" in second
    assert 'href="/?page_size=3&amp;page=1"' in second


def test_a_job_that_an_error_ended_is_listed_as_failed_with_its_end(tmp_path: Path) -> None:
    build_run(tmp_path / "healthy", RunPlan(operators=False))
    path = build_run(tmp_path / "broken", RunPlan(ranks=2, operators=False))
    edit_rank(path, 0, facts={"ended_by": "RuntimeError: Connection closed by peer"})
    edit_rank(path, 1, facts={"ended_by": "ValueError: planted"})
    asker = Asker(tmp_path)
    assert '<span class="badge badge-failed">Failed</span>' in asker.ask("/?state=failed").text

    def read_end() -> str:
        (found,) = asker.ask("/api/v1/runs?state=failed").json()["runs"]
        assert (found["id"], found["state"]) == ("broken", "failed")
        return str(found["end"])

    assert wait_for(read_end).startswith("The job was ended after 40 steps by ValueError: planted (rank 1)")
    others = asker.ask("/api/v1/runs?state=complete").json()["runs"]
    assert [(run["id"], run["end"]) for run in others] == [("healthy", "")]


@pytest.mark.parametrize("query", ["sort=size", "state=asleep", "page=x", "page=0", "page_size=9999"])
def test_a_bad_query_is_a_designed_400(asker: Asker, query: str) -> None:
    answer = asker.ask(f"/?{query}")
    assert answer.status_code == 400
    assert "List of runs" in answer.text


def test_an_unreadable_run_is_shown_with_why(tmp_path: Path) -> None:
    build_run(tmp_path / "bad")
    layout.run_file(tmp_path / "bad").write_text("{")
    text = Asker(tmp_path).ask("/").text
    assert "1 cannot be read" in text
    assert "run.json is damaged" in text


def test_the_page_says_what_may_be_dropped_on_it(asker: Asker) -> None:
    text = asker.ask("/").text
    assert "The trace files of one job, one file for each rank: open a folder and choose the files in it." in text
    assert "Or one packed run (.stepscope)." in text


def test_verdicts_come_after_the_page(web_base: Path) -> None:
    asker = Asker(web_base)
    asker.ask("/")

    def read_kind() -> str | None:
        ((run, verdict),) = asker.ask("/api/v1/verdicts?run=team/slow&run=none").json().items()
        assert run == "team/slow"
        return None if verdict["pending"] else str(verdict["kind"])

    assert wait_for(read_kind) == "input"
    assert "Input" in asker.ask("/").text


def test_runs_that_were_never_read_do_not_hold_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_run(tmp_path / "a")
    build_run(tmp_path / "b")
    monkeypatch.setattr(run_list, "FIRST_LOOK_S", -1.0)
    asker = Asker(tmp_path)
    text = asker.ask("/").text
    assert "2 of 2 runs are still being read" in text
    assert text.count("data-reading") == 2
    text = wait_for(lambda: "" if "data-unread" in (text := asker.ask("/").text) else text)
    assert "data-reading" not in text
    assert "40" in text


def test_the_api_answers_with_every_run_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_run(tmp_path / "a")
    monkeypatch.setattr(run_list, "FIRST_LOOK_S", -1.0)
    assert [run["steps"] for run in Asker(tmp_path).ask("/api/v1/runs").json()["runs"]] == [40]


def test_the_run_from_which_on_a_script_is_slower_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_list, "FIRST_LOOK_S", 600.0)
    for number in range(12):
        forward_ms = (64.0 if number < 6 else 74.0) + 0.3 * (number * 5 % 7)
        path = build_run(
            tmp_path / f"cnn-{number}", RunPlan(steps=14, operators=False, phases_ms={"forward": forward_ms})
        )
        edit_run(path, created_unix_ns=number + 1)
    rows = Asker(tmp_path).ask("/").text.split("<tr>")
    (marked,) = [row for row in rows if "from here on" in row]
    assert "Compare cnn-6" in marked
    assert "Median of the 6 runs from this one on" in marked
    assert 'class="level slower"' in marked


_ASK = """
import json, sys
from pathlib import Path
from collector.format.run import open_run
from collector.format.schema.errors import RunNotFoundError
from tests.support.asking import Asker
base = Path(sys.argv[1])
asker = Asker(base)
answers = {path: asker.ask(path) for path in sys.argv[2:]}
found = {path: (answer.status_code, answer.text) for path, answer in answers.items()}
for name in ("closed", "half"):
    try:
        open_run(base / name)
    except RunNotFoundError as error:
        found[name] = (0, str(error))
print(json.dumps(found))
"""
_ROOT = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
"""Root reads everything; without these rights it is a user like others."""


def _ask(base: Path, *paths: str) -> dict[str, Any]:
    command = [sys.executable, "-c", _ASK, str(base), *paths]
    done = subprocess.run(
        [*(_ROOT if os.geteuid() == 0 else ()), *command], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base of three runs: `open`, `closed` with a folder that nobody may enter, `half` with such a `profiler/`."""
    folders = {name: build_run(tmp_path / name) for name in ("open", "closed", "half")}
    for folder in (folders["closed"], folders["half"] / "profiler"):
        folder.chmod(0o000)
        if os.geteuid() == 0:
            os.chown(folder, 65534, 65534)
            folder.chmod(0o700)
    return tmp_path


def test_runs_of_another_user_are_listed_with_the_reason(base: Path) -> None:
    found = _ask(base, "/", "/api/v1/runs", "/runs/closed/", "/runs/half/", "/runs/open/", "/api/v1/runs/closed")
    listing = json.loads(found["/api/v1/runs"][1])
    assert [run["id"] for run in listing["runs"]] == ["open"]
    assert found["/"][0] == found["/runs/open/"][0] == 200
    assert found["/runs/closed/"][0] == found["/runs/half/"][0] == found["/api/v1/runs/closed"][0] == 404
    for text in (*(text for _, text in found.values() if text != found["/runs/open/"][1]),):
        assert "PROFILER_SHARED=1" in text
        assert "Traceback" not in text
    if os.geteuid() == 0:
        assert "It belongs to nobody, mode 0700" in found["closed"][1]
        assert "It belongs to nobody, mode 0700" in found["/runs/half/"][1]
        for page in ("/runs/closed/", "/runs/half/", "/api/v1/runs/closed"):
            assert "moved or deleted" not in found[page][1]
            assert "No such run" not in found[page][1]
    assert str(base / "half/profiler") in found["half"][1]
