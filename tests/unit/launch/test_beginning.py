"""What makes a recording begin without a call: torch, a mark, or the environment; and a trace where one is asked for."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from collector import open_run
from tests.support import forking
from tests.unit.launch.programs import LOOP, ROOT, run_launcher, write_script

MARKS = """
import sys, time
from collector import pop_range, push_range
push_range("pipeline")
for index in range(3):
    push_range("batch", batch_idx=index)
    time.sleep(0.001)
    pop_range(total_items=8)
pop_range()
"""
NO_TORCH = "import sys\nsys.modules['torch'] = None\n"
WINDOW_OFF = '{"window": null}'


def run_python(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}
    return forking.run([sys.executable, *words], cwd=folder, env=environment)


@pytest.mark.parametrize("is_installed", [True, False])
def test_a_script_without_torch_is_recorded_from_its_first_range(tmp_path: Path, is_installed: bool) -> None:
    script = write_script(tmp_path, MARKS if is_installed else NO_TORCH + MARKS)
    launched = run_launcher(tmp_path, "-o", "out", script)
    assert launched.returncode == 0, launched.stderr
    rows = open_run(tmp_path / "out").table("ranges").to_pylist()
    assert sorted(row["path"] for row in rows) == ["pipeline", *["pipeline/batch"] * 3]
    left_out = [line for line in launched.stderr.splitlines() if "left out" in line]
    assert len(left_out) == (not is_installed), left_out


def test_a_stage_begins_the_recording_too(tmp_path: Path) -> None:
    text = "import collector\nfor _ in range(4):\n    with collector.stage('decode'):\n        sum(range(1000))\n"
    launched = run_launcher(tmp_path, "-o", "out", "--options", WINDOW_OFF, write_script(tmp_path, text))
    assert launched.returncode == 0, launched.stderr
    work = open_run(tmp_path / "out").frame("stages").query("kind == 'work'")
    assert work["items"].sum() == 4


def test_a_process_that_was_forked_before_it_begins_no_recording(tmp_path: Path) -> None:
    fork = "import os\nif os.fork() == 0:\n    from collector import record\n    with record('child'): pass\n    os._exit(0)\nos.wait()\n"
    launched = run_launcher(tmp_path, "-o", "out", write_script(tmp_path, fork))
    assert "neither imported torch nor marked a range" in launched.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["trace.json", "v1.2.json.gz"])
def test_a_path_of_a_trace_gives_a_trace_and_a_run_beside_it(tmp_path: Path, name: str) -> None:
    script = write_script(tmp_path, LOOP)
    launched = run_launcher(tmp_path, script, PROFILER_OUTPUT_PATH=f"runs/{name}", PROFILER_OPTIONS=WINDOW_OFF)
    assert launched.returncode == 0, launched.stderr
    path = tmp_path / "runs" / name
    text = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
    assert len(json.loads(text)["traceEvents"]) > 3
    run = name.removesuffix(".gz").removesuffix(".json")
    assert open_run(tmp_path / "runs" / run).rank().count_steps() == 3
    assert f"recorded 3 steps in runs/{run} and as a trace in {path}; " in launched.stderr


def test_a_profiler_in_the_script_takes_the_path_of_a_trace(tmp_path: Path) -> None:
    text = f"from collector import Profiler\nprofiler = Profiler('out.json', window=None)\n{LOOP}\nprofiler.analyse()\n"
    done = run_python(tmp_path, str(write_script(tmp_path, text)))
    assert done.stderr.startswith("stepscope: recorded 3 steps in out and as a trace in out.json; "), done.stderr
    assert (tmp_path / "out.json").is_file()
    assert (tmp_path / "out/profiler/run.json").is_file()


def test_a_run_that_lies_in_a_folder_named_like_a_trace_stays_one(tmp_path: Path) -> None:
    (tmp_path / "old.json").mkdir()
    text = f"from collector import Profiler\nprofiler = Profiler('old.json', window=None)\n{LOOP}\nprofiler.analyse()\n"
    assert run_python(tmp_path, str(write_script(tmp_path, text))).returncode == 0
    assert open_run(tmp_path / "old.json").rank().count_steps() == 3


@pytest.mark.parametrize("order", ["import collector.auto\nimport torch\n", "import torch\nimport collector.auto\n"])
def test_one_import_records_under_plain_python_where_the_variable_is_set(tmp_path: Path, order: str) -> None:
    script = str(write_script(tmp_path, order + LOOP))
    silent = run_python(tmp_path, script)
    assert (silent.returncode, silent.stderr) == (0, "")
    assert not (tmp_path / "profiler_output").exists()
    done = run_python(tmp_path, script, PROFILER_OUTPUT_PATH="out", PROFILER_OPTIONS=WINDOW_OFF)
    assert done.returncode == 0, done.stderr
    assert open_run(tmp_path / "out").rank().count_steps() == 3


def test_one_import_changes_nothing_below_stepscope_run(tmp_path: Path) -> None:
    script = write_script(tmp_path, "import collector.auto\n" + LOOP)
    launched = run_launcher(tmp_path, "-o", "out", "--options", WINDOW_OFF, script)
    assert launched.returncode == 0, launched.stderr
    assert open_run(tmp_path / "out").rank().count_steps() == 3
    assert not (tmp_path / "out/earlier").exists()
