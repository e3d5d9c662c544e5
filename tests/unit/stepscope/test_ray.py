"""Ray Train's workers record their ranks of one run: the example of the documents, and an error of the train loop."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stepscope
from collector import OptionError, Run
from stepscope.ray import record_loop
from tests.support import shapes
from tests.support.examples import ROOT, list_examples
from tests.unit.stepscope.comparing import FAST, count_kinds

(EXAMPLE,) = (one.text for one in list_examples(ROOT / "docs/how-to/ray.md") if one.language == "python")
# On one processor, too, without a page of its own, and without a key in the home folder.
BEGIN = "import ray; ray.init(num_cpus=3, include_dashboard=False)\n"


@pytest.mark.slow
def test_the_example_of_the_document_records_every_worker(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(ROOT), "PROFILER_VERDICT": "0", "RAY_AUTH_MODE": "disabled", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + EXAMPLE],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    run = Run(tmp_path / "runs/digits")
    assert run.ranks == (0, 1)
    assert [run.rank(rank).count_steps() for rank in run.ranks] == [30, 30]


def test_a_loop_is_recorded_with_its_argument_and_its_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train_loop(config: dict[str, Any]) -> str:
        shapes.plain()
        return str(config["name"])

    monkeypatch.chdir(tmp_path)
    loop = record_loop(train_loop, "run", **FAST)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert inspect.signature(loop) == inspect.signature(train_loop)  # Ray asks whether the loop takes a config
    assert loop({"name": "a"}) == "a"
    assert stepscope.active_profiler() is None
    assert count_kinds(Run(tmp_path / "run"))["train"] > 0


def test_an_error_of_the_loop_passes_through_and_is_noted(tmp_path: Path) -> None:
    def train_loop() -> None:
        shapes.plain()
        raise ValueError("no such label")

    with pytest.raises(ValueError, match="no such label") as caught:
        record_loop(train_loop, tmp_path / "run", **FAST)()
    shown = [entry.name for entry in caught.traceback]
    assert shown[-1] == "train_loop"
    assert "recorded" not in shown or sys.version_info < (3, 11)
    assert Run(tmp_path / "run").rank().manifest.facts["ended_by"] == "ValueError: no such label"


def test_a_misspelt_option_is_named_where_it_stands() -> None:
    with pytest.raises(OptionError, match="no option 'widow'; did you mean 'window'"):
        record_loop(shapes.plain, "run", widow=(3, 2))
