"""Accelerate begins and ends a run as a tracker; what is recorded in between is what a plain Profiler records."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from accelerate import Accelerator

import stepscope
from collector import OptionError, Run
from stepscope.accelerate import StepscopeTracker
from tests.support import shapes
from tests.unit.stepscope.comparing import FAST, count_kinds, list_rows, list_saves, record_around

# Frameworks warn of what is their own business.
pytestmark = pytest.mark.filterwarnings("ignore")
ROOT = Path(__file__).parents[3]


def train(folder: Path, log_with: Any = None, **options: Any) -> None:
    accelerator = Accelerator(log_with=log_with, cpu=True)
    accelerator.init_trackers("digits / small", init_kwargs={"stepscope": options} if options else None)
    model = shapes.Net()
    model, optimizer, batches = accelerator.prepare(model, shapes.sgd(model), shapes.loader())
    for _ in range(2):
        for x, y in batches:
            accelerator.backward(shapes.loss_of(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
            accelerator.log({"loss": 0.5})
        accelerator.save_state(str(folder / "state"))
    accelerator.end_training()


@pytest.mark.parametrize("form", ["name", "instance"])
def test_a_training_is_recorded_as_by_a_plain_profiler_around_it(tmp_path: Path, form: str) -> None:
    if form == "name":
        train(tmp_path, "stepscope", output_path=tmp_path / "door", **FAST)
    else:
        train(tmp_path, StepscopeTracker("digits", tmp_path / "door", **FAST))
    assert stepscope.active_profiler() is None
    plain, run = record_around(tmp_path / "plain", lambda: train(tmp_path)), Run(tmp_path / "door")
    assert count_kinds(run) == {"train": 20}
    assert list_rows(run) == list_rows(plain)
    assert list_saves(run) == list_saves(plain) == ["Accelerator.save_state"] * 2


def test_a_run_without_a_path_has_the_name_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train(tmp_path, "stepscope", **FAST)
    train(tmp_path, "stepscope", **FAST)
    found = sorted(path.name for path in (tmp_path / "profiler_output").iterdir())
    assert found == ["digits-small", "digits-small-2"]


def test_a_profiler_that_records_already_goes_on_alone(tmp_path: Path) -> None:
    run = record_around(tmp_path / "run", lambda: train(tmp_path, "stepscope", output_path=tmp_path / "door", **FAST))
    assert count_kinds(run) == {"train": 20}
    assert not (tmp_path / "door").exists()


def test_a_misspelt_option_is_named_where_it_stands() -> None:
    with pytest.raises(OptionError, match="no option 'widow'; did you mean 'window'"):
        StepscopeTracker("digits", widow=(3, 2))


@pytest.mark.slow
def test_every_process_records_its_rank(tmp_path: Path) -> None:
    """Accelerate itself starts and ends trackers in the main process only."""
    script = tmp_path / "train.py"
    script.write_text(
        "import stepscope.accelerate\n"
        "from pathlib import Path\n"
        "from tests.unit.stepscope.test_accelerate import FAST, train\n"
        'train(Path("."), "stepscope", output_path="run", **FAST)\n'
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    environment = {"PYTHONPATH": str(ROOT), "PROFILER_VERDICT": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    run = Run(tmp_path / "run")
    assert run.ranks == (0, 1)
    ends = [(run.rank(rank).count_steps(), run.rank(rank).manifest.facts.get("ended_by")) for rank in run.ranks]
    assert ends == [(10, None), (10, None)]
