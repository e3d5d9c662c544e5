"""The commands of the documents on single files, flame graphs and assistants are run as they stand."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import stepscope
from tests.support.runs import RunPlan, build_run
from tests.support.stacks import in_phase, own, write_stacks
from tests.web.test_command_line import run

HOW_TO = Path(__file__).parents[2] / "docs/how-to"


def read_commands(text: str) -> list[list[str]]:
    """Return the words of each command of ours in the shell blocks of a document."""
    blocks = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    lines = [line for line in blocks.splitlines() if line.startswith("stepscope")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the run of the documents and another of the same script in `runs`."""
    (tmp_path / "runs").mkdir()
    rows = [in_phase("forward", 300, own("train", 20), own("Model.forward", 31))]
    write_stacks(build_run(tmp_path / "runs/digits", RunPlan(steps=20)), rows, start_ns=10**9)
    build_run(tmp_path / "runs/before", RunPlan(steps=20))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_document(name: str) -> list[str]:
    """Run all commands of a document. Return what each printed."""
    found = []
    for words in read_commands((HOW_TO / name).read_text("utf-8")):
        done = run(*words)
        assert (done.returncode, done.stderr) == (0, ""), words
        found.append(done.stdout)
    return found


def test_a_run_is_packed_and_opened_as_the_document_says(folder: Path) -> None:
    packed, brief = run_document("one-file.md")
    assert "digits.stepscope" in packed
    assert brief == run("report", "runs/digits", "--brief").stdout
    assert stepscope.open_run("digits.stepscope").manifest.name == "digits"
    again = run("import", "digits.stepscope", "--summary-base-dir", "base")
    assert again.returncode == 0, again.stderr
    assert run("compare", "digits.stepscope", "base/digits").returncode == 0


def test_flame_graphs_are_written_as_the_document_says(folder: Path) -> None:
    written = [printed for printed in run_document("flame-graphs.md") if "300 samples" in printed]
    assert len(written) == 2
    assert {path.name for path in folder.iterdir()} == {"runs", "digits.speedscope.json", "digits.pb.gz"}


def test_an_assistant_is_given_what_the_document_says(folder: Path) -> None:
    text = (HOW_TO / "assistants.md").read_text("utf-8")
    (block,) = re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    entry = json.loads(block)["mcpServers"]["stepscope"]
    assert entry["command"] == "stepscope"
    words = [word.replace("/path/to/runs", "runs") for word in entry["args"]]
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    said = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "profiler_server", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(HOW_TO.parents[1])},
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(f"{json.dumps(message)}\n" for message in said))
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        tools = json.loads(process.stdout.readline())["result"]["tools"]
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert [tool["name"] for tool in tools] == listed


def test_the_skill_is_found_as_the_document_says() -> None:
    text = (HOW_TO / "assistants.md").read_text("utf-8")
    (line,) = re.findall(r"^python -c .*$", text, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, *shlex.split(line)[1:]], capture_output=True, text=True, cwd=HOW_TO.parents[1], check=True
    )
    assert Path(done.stdout.strip(), "SKILL.md").is_file()


def test_stacks_go_with_a_choice_of_ranks_and_no_other(folder: Path) -> None:
    done = run("export", "runs/digits", "--stacks", "a.pb.gz", "--steps", "1-3")
    assert done.returncode == 2
    assert "only --ranks" in done.stderr


def test_a_pack_of_another_ending_or_place_is_refused(folder: Path) -> None:
    for output in ("digits.zip", "none/digits.stepscope"):
        done = run("pack", "runs/digits", "-o", output)
        assert (done.returncode, done.stdout) == (2, "")
        assert output in done.stderr
        assert len(done.stderr.splitlines()) == 1
