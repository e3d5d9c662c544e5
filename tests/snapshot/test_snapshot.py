"""A snapshot of one small run: equal each time, every page in it, and a figure that changed is found."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import profiler_server.pages
from tests.snapshot.__main__ import main
from tests.snapshot.apart import DONE
from tests.snapshot.comparing import read_expectations
from tests.snapshot.still import hold_place
from tests.snapshot.taking import take_folder
from tests.support.runs import RunPlan, build_run

PAGE = """
from dataclasses import dataclass
from profiler_server.page import Page
@dataclass(frozen=True)
class Context:
    error: object
@dataclass(frozen=True)
class Told:
    status: int = 418
    title: str = "Said by a page that nobody knows"
    cause: str = ""
    remedy: str = ""
    detail: str = ""
PAGE = Page("unheard", "Unheard", 99, "z", "error.html", lambda request: Context(Told()))
"""


@pytest.fixture(autouse=True, scope="module")
def own_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Wait for nobody who takes a snapshot meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("place")))
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("runs")
    build_run(base / "tiny/run", RunPlan(steps=14, ranks=2))
    (base / "tiny" / DONE).touch()
    return base


@pytest.fixture(scope="module")
def taken(runs: Path) -> Path:
    """The same run, taken twice, each time in a fresh process."""
    for name in ("a", "b"):
        assert main(["take", str(runs), str(runs / name)]) == 0
    return runs


def change(taken: Path, edit: Callable[[Any], None]) -> Path:
    """Return a copy of the snapshot with a change."""
    data = json.loads((taken / "a/tiny.json").read_text("utf-8"))
    edit(data["runs"]["run"])
    (taken / "c").mkdir(exist_ok=True)
    (taken / "c/tiny.json").write_text(json.dumps(data), "utf-8")
    return taken / "c"


def test_a_run_that_is_taken_twice_is_equal(taken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(taken / "a"), str(taken / "b")]) == 0
    assert capsys.readouterr().out == "0 changes, 0 more that were expected\n"
    assert (taken / "a/tiny.json").read_bytes() == (taken / "b/tiny.json").read_bytes()


def test_what_a_user_sees_is_in_it(taken: Path) -> None:
    text = (taken / "a/tiny.json").read_text("utf-8")
    assert str(taken) not in text
    data = json.loads(text)
    run = data["runs"]["run"]
    assert len(run["reports"]["--json"]["ranks"]) == 2
    assert run["reports"]["--brief"][0].startswith("Compute-bound: ")
    assert run["tables"]["1"]["steps"]["rows"] == 14
    for slug in ("", "steps", "operators", "device", "data", "memory", "ranks", "timeline"):
        assert {f"/runs/run/{slug}?rank={rank}" for rank in (0, 1)} <= run["pages"].keys()
    assert run["pages"]["/api/v1/runs/run/timeline/export?ranks=0"]["events"]["X operator"]["count"] == 21
    assert run["interface"]["/api/v1/runs/{run_id}/timeline/meta"]["slices"] > 0


def test_a_figure_that_changed_is_found_unless_it_is_expected(
    taken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def edit(run: Any) -> None:
        for rank in run["reports"]["--json"]["ranks"]:
            rank["steps"]["duration_ns"]["mean"] += 1

    changed = change(taken, edit)
    assert main(["compare", str(taken / "a"), str(changed)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("runs/run/reports/--json/ranks/*/steps/duration_ns/mean (2 in 1 runs: tiny)\n")
    expect = tmp_path / "expect"
    expect.write_text("runs/*/steps/duration_ns/mean  # the mean is rounded up\n", "utf-8")
    assert main(["compare", str(taken / "a"), str(changed), "--expect", str(expect)]) == 0
    assert main(["compare", str(taken / "a"), str(taken / "b"), "--expect", str(expect)]) == 1
    assert "expected, but does not differ: runs/*/steps/duration_ns/mean" in capsys.readouterr().out


def test_a_line_that_came_is_one_change_and_moves_no_other(taken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = change(taken, lambda run: run["reports"]["text"].insert(3, "One line more"))
    assert main(["compare", str(taken / "a"), str(changed)]) == 1
    assert '– -> "One line more"\n1 changes' in capsys.readouterr().out


def test_a_run_that_is_gone_is_found(taken: Path, tmp_path: Path) -> None:
    assert main(["compare", str(taken / "a"), str(tmp_path)]) == 1


def test_an_expectation_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="reason"):
        read_expectations("runs/*")


def test_a_page_that_nobody_lists_is_taken(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unheard.py").write_text(PAGE, "utf-8")
    monkeypatch.setattr(profiler_server.pages, "__path__", [*profiler_server.pages.__path__, str(tmp_path)])
    with hold_place() as root:
        pages = json.loads(take_folder(runs / "tiny", root))["runs"]["run"]["pages"]
    assert "Said by a page that nobody knows" in pages["/runs/run/unheard?rank=0"]["lines"]
