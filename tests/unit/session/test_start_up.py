"""From when on the time to the first step counts: the start of the process, where that is known."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from collector import Profiler
from collector.context.hooks import ImportWatch
from collector.format.run import open_run
from collector.session import start_up
from tests.support.must import must

_TELL = "import json, time; from collector.session.start_up import describe_start; print(json.dumps(describe_start(time.time_ns())))"
_ROOT = Path(start_up.__file__).parents[2]


def _ask(*words: str) -> dict[str, Any]:
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=_ROOT)
    return dict(json.loads(done.stdout))


def test_the_time_counts_from_the_start_of_the_process() -> None:
    before = time.time_ns()
    told = _ask(sys.executable, "-c", _TELL)
    assert told["is_process"]
    tick_ns = 20_000_000
    assert before - tick_ns <= told["since_unix_ns"] <= told["began_unix_ns"]


def test_the_work_of_a_shell_that_becomes_python_does_not_count() -> None:
    told = _ask("bash", "-c", f"sleep 0.5; exec {sys.executable} -c '{_TELL}'")
    assert not told["is_process"]
    assert told["began_unix_ns"] - told["since_unix_ns"] < 400_000_000


def test_a_later_recording_and_an_interactive_one_count_from_their_own_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.time_ns()
    monkeypatch.setattr(start_up, "_recorded_in", [])
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)  # another test may have imported it
    assert start_up.describe_start(began)["since_unix_ns"] < began
    start_up.note_recorded()
    assert start_up.describe_start(began) == {
        "since_unix_ns": began,
        "is_process": False,
        "began_unix_ns": began,
        "torch_unix_ns": [],
    }
    monkeypatch.setattr(start_up, "_recorded_in", [])
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert start_up.describe_start(began)["since_unix_ns"] == began


def test_an_import_of_torch_is_timed_where_it_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_up, "_torch_unix_ns", [])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with start_up.timing_torch():
        monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    began, ended = start_up._torch_unix_ns
    assert 0 < began <= ended <= time.time_ns()
    with start_up.timing_torch():
        pass  # it is there already
    assert start_up._torch_unix_ns == [began, ended]


def test_a_run_notes_when_it_began(tmp_path: Path, profiler: Profiler) -> None:
    profiler.analyse()
    told = open_run(tmp_path / "run").rank().manifest.facts["start_up"]
    assert told["since_unix_ns"] <= told["began_unix_ns"] <= open_run(tmp_path / "run").rank().manifest.started_unix_ns


def test_the_watch_of_an_import_knows_how_long_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time; time.sleep(0.05)\n")
    monkeypatch.syspath_prepend(tmp_path)
    spans: list[tuple[int, int]] = []
    watch = ImportWatch("slow_to_import", lambda: spans.append(watch.span_unix_ns))
    monkeypatch.setattr(sys, "meta_path", [watch, *sys.meta_path])
    importlib.import_module("slow_to_import")
    monkeypatch.delitem(sys.modules, "slow_to_import")
    ((began, ended),) = spans
    assert ended - began >= 50_000_000


def test_a_module_is_followed_that_others_only_asked_for_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries such as datasets and transformers ask whether torch can be found, long before anything imports it."""
    (tmp_path / "asked_for.py").write_text("import os; assert os.environ.get('ASKED_FOR'), 'not yet'\n")
    monkeypatch.syspath_prepend(tmp_path)
    calls: list[int] = []
    watch = ImportWatch("asked_for", lambda: calls.append(1))
    monkeypatch.setattr(sys, "meta_path", [watch, *sys.meta_path])
    for _ in range(2):
        assert importlib.util.find_spec("asked_for") is not None
    early = must(importlib.util.find_spec("asked_for"))
    with pytest.raises(AssertionError, match="not yet"):
        importlib.import_module("asked_for")
    assert (calls, watch.is_waiting) == ([], True)
    monkeypatch.setenv("ASKED_FOR", "1")
    module = importlib.import_module("asked_for")
    must(early.loader).exec_module(module)
    monkeypatch.delitem(sys.modules, "asked_for")
    assert (calls, watch.is_waiting) == ([1], False)
