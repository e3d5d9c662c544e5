"""Names and messages that are no text, and options that are no options, keep nobody from training or recording."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from collector import open_run
from collector.format.schema.layout import events_path
from collector.notes import NOTES_FILE, Notes, read_notes, write_notes
from tests.support import forking

ODD = b"caf\xe9"
TRAINING = """
import sys, torch
torch.set_num_threads(1)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("trained", len(sys.argv))
if "raise" in sys.argv:
    raise ValueError("lone \\ud800 surrogate")
"""


def record(folder: Path, *arguments: bytes | str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    script = os.fsencode(folder) + b"/" + ODD + b".py"
    with open(script, "w", encoding="utf-8") as file:
        file.write(TRAINING)
    words = [os.fsdecode(word) for word in (script, *arguments)]
    command = [sys.executable, "-m", "collector.launch", *words]
    return forking.run(command, cwd=folder, env={**os.environ, **environment}, text=False)


def test_bytes_that_are_no_text_in_a_script_its_arguments_and_the_output_are_recorded(tmp_path: Path) -> None:
    output = os.fsdecode(os.fsencode(tmp_path) + b"/out" + ODD)
    done = record(tmp_path, ODD, PROFILER_OUTPUT_PATH=output)
    assert (done.returncode, done.stdout) == (0, b"trained 2\n"), done.stderr
    run = open_run(Path(output))
    assert (run.state, run.rank(0).count_steps()) == ("complete", 12)
    assert (run.manifest.script, run.manifest.argv, run.manifest.id) == (
        "caf\\udce9.py",
        ("caf\\udce9",),
        "outcaf\\udce9",
    )


def test_a_message_that_is_no_text_ends_the_run_as_any_other(tmp_path: Path) -> None:
    done = record(tmp_path, "raise", PROFILER_OUTPUT_PATH=str(tmp_path / "out"))
    assert done.returncode == 1
    run = open_run(tmp_path / "out")
    assert (run.state, run.rank(0).count_steps()) == ("complete", 12)
    assert run.rank(0).manifest.facts["ended_by"] == "ValueError: lone \\ud800 surrogate"


def test_options_that_are_nested_without_end_are_reported_and_the_training_is_recorded(tmp_path: Path) -> None:
    done = record(tmp_path, PROFILER_OUTPUT_PATH=str(tmp_path / "out"), PROFILER_OPTIONS='{"a":' * 3000)
    assert (done.returncode, done.stdout) == (0, b"trained 1\n")
    assert b"PROFILER_OPTIONS is not JSON" in done.stderr
    assert open_run(tmp_path / "out").rank(0).count_steps() == 12


def test_notes_of_an_earlier_version_with_half_a_character_are_read(tmp_path: Path) -> None:
    events_path(tmp_path).mkdir()
    notes = Notes(0, 1, None, "host", 0, 0, 0, 0, facts={"ended_by": "lone \\ud800"})
    write_notes(notes, tmp_path)
    file = events_path(tmp_path) / NOTES_FILE
    file.write_text(file.read_text().replace("\\\\ud800", "\\ud800"))
    assert json.loads(file.read_text())["facts"]["ended_by"] == "lone \ud800"
    assert read_notes(tmp_path).facts["ended_by"] == "lone \\ud800"
