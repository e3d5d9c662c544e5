"""The assistant's door: nothing but JSON-RPC on stdout, no names where they are left out, only runs below the folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.format.schema import layout
from collector.format.schema.errors import OptionError, RunNotFoundError, StepscopeError
from profiler_server.assistant.answers import Answers
from profiler_server.assistant.fitting import LIMIT_BYTES
from tests.support.canary import CANARY, find_canaries, plant
from tests.support.cases import PLANTED, build_case_run
from tests.support.runs import RunPlan, build_run

ROOT = Path(__file__).parents[3]
NOISY = """
import ctypes, atexit, os, sys, threading

def shout(word):
    print(f"{word} of Python")
    os.write(1, f"{word} of the system\\n".encode())
    ctypes.CDLL(None).printf(f"{word} of C, which is flushed late\\n".encode())

class Loud:
    def find_spec(self, name, path=None, target=None):
        if name in ("mcp", "duckdb", "scipy", "profiler_server.report.building"):
            shout(f"import {name}")

sys.meta_path.insert(0, Loud())
atexit.register(shout, "end")
"""


def start(words: list[str], said: str, **given: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "profiler_server", "mcp", *words],
        input=said,
        env={**os.environ, **given},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )


def spell_session(*calls: tuple[str, dict[str, Any]]) -> str:
    """Return the messages of a client that asks and leaves."""
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    messages: list[dict[str, Any]] = [
        {"id": 0, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        *(
            {"id": n, "method": "tools/call", "params": {"name": name, "arguments": given}}
            for n, (name, given) in enumerate(calls, 1)
        ),
    ]
    return "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)


def test_nothing_but_json_is_written_with_libraries_that_print(tmp_path: Path) -> None:
    (tmp_path / "loud").mkdir()
    (tmp_path / "loud/sitecustomize.py").write_text(NOISY)
    build_run(tmp_path / "runs/digits")
    said = spell_session(("overview", {"run": "digits"}), ("sql", {"run": "digits", "query": "select 1 one"}))
    done = start(["--summary-base-dir", str(tmp_path / "runs")], said, PYTHONPATH=f"{tmp_path / 'loud'}:{ROOT}")
    assert done.stdout[0] == "{"
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {message["jsonrpc"] for message in found} == {"2.0"}
    assert 0 in {message["id"] for message in found}
    for word in ("import mcp of Python", "import mcp of the system", "import mcp of C", "end of Python", "end of C"):
        assert word in done.stderr


def test_a_folder_is_needed(tmp_path: Path) -> None:
    for words in ([], ["--summary-base-dir", str(tmp_path / "none")]):
        done = start(words, "")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert "--summary-base-dir" in done.stderr


@pytest.mark.parametrize("lacks", ["mcp", "mcp_types"])
def test_without_the_package_one_line_names_the_extra(tmp_path: Path, lacks: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{lacks!r}] = None\n")
    done = start(["--summary-base-dir", str(tmp_path)], "", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "pip install 'stepscope[mcp]'" in done.stderr


def ask_everything(answers: Answers, run: str, other: str) -> Iterator[str]:
    """Yield every answer on a run, also those that are errors."""
    suggestions = json.loads(answers.overview(run))["suggestions"].get("entries", ())
    questions: list[tuple[Any, tuple[Any, ...]]] = [
        (answers.list_runs, ()),
        (answers.overview, (run,)),
        *((answers.overview, (run, None, entry["rule"])) for entry in suggestions),
        (answers.overview, (run, None, "no such rule")),
        (answers.overview, (run, 7)),
        *((ask, (run,)) for ask in (answers.phases, answers.operators, answers.data_pipeline, answers.ranks)),
        (answers.compare, (run, other)),
        *(
            (answers.sql, (run, f"select * from {table} limit 40"))
            for table in ("steps", "stacks", "operators", "stages", "ranges", "slices", "nothing")
        ),
    ]
    yield from (ask_one(answers, ask, given) for ask, given in questions)


def ask_one(answers: Answers, ask: Callable[..., str], given: tuple[Any, ...]) -> str:
    try:
        return ask(*given)
    except StepscopeError as error:
        return answers.hide(str(error))


def test_no_name_of_the_user_leaves_where_names_are_left_out(tmp_path: Path) -> None:
    base = tmp_path / f"{CANARY}-base"
    for name in (f"{CANARY}-team/{CANARY}-one", f"{CANARY}-two"):
        build_case_run(base / name, PLANTED["too_few_workers"])
        plant(base / name)
    broken = build_run(base / f"{CANARY}-broken", RunPlan(steps=3))
    layout.run_file(broken).write_text("{")
    answers = Answers(base, is_redacted=True)
    assert json.loads(answers.list_runs())["unreadable"]["total"] == 1
    assert json.loads(answers.list_runs())["runs"]["total"] == 2
    found = list(ask_everything(answers, "run 1", "run 2"))
    assert [spot for text in found for spot in find_canaries(text)] == []
    assert "run 1" in found[0]
    with pytest.raises(RunNotFoundError, match="list_runs names them"):
        answers.overview(f"{CANARY}-two")
    with pytest.raises(OptionError, match="cannot be searched"):
        answers.list_runs(words=CANARY)


def test_names_are_given_where_they_are_not_left_out(tmp_path: Path) -> None:
    build_case_run(tmp_path / "digits", PLANTED["too_few_workers"])
    assert any("DigitFiles" in text for text in ask_everything(Answers(tmp_path), "digits", "digits"))


@pytest.mark.slow
def test_many_runs_ranks_and_long_names_stay_within_the_limit(tmp_path: Path) -> None:
    for number in range(40):
        build_run(tmp_path / f"{'a long name of a run ' * 6}{number}", RunPlan(steps=3, operators=False))
    build_run(tmp_path / "wide", RunPlan(steps=5, ranks=70))
    plant(build_run(tmp_path / "odd", RunPlan(steps=30)))
    answers = Answers(tmp_path)
    found = [*ask_everything(answers, "wide", "odd"), *ask_everything(answers, "odd", "wide")]
    assert max(len(text.encode()) for text in found) <= LIMIT_BYTES
    listed: list[str] = []
    while len(listed) < 42:
        runs = json.loads(answers.list_runs(skip=len(listed)))["runs"]
        assert runs["total"] == 42
        listed += [entry["run"] for entry in runs["entries"]]
    assert len(set(listed)) == 42


def test_a_link_below_the_folder_leads_nowhere(tmp_path: Path) -> None:
    build_run(tmp_path / "elsewhere/digits")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/link").symlink_to(tmp_path / "elsewhere/digits")
    answers = Answers(tmp_path / "runs")
    for name in ("link", "../elsewhere/digits", str(tmp_path / "elsewhere/digits"), "", "link/../link"):
        with pytest.raises(RunNotFoundError):
            answers.overview(name)
