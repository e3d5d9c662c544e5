"""What `stepscope run` records: scripts as they are, below torchrun, with workers, and beside a Profiler of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from collector import open_run
from tests.unit.launch.programs import LOOP, ROOT, run_launcher, write_script

DDP = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(6):
    optimizer.zero_grad()
    model(torch.randn(8, 16)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""
SPAWNED = """
import torch
class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 24
    def __getitem__(self, index): return torch.ones(16)
if __name__ == "__main__":
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in torch.utils.data.DataLoader(Numbers(), 8, num_workers=1, multiprocessing_context="spawn"):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
"""


def count_steps(path: Path, rank: int = 0) -> int:
    return sum(row["kind"] == "train" for row in open_run(path).table("steps", rank=rank).to_pylist())


def test_a_script_is_recorded_as_it_is(tmp_path: Path) -> None:
    words = ("-o", "runs/a", "--options", '{"window": null}')
    launched = run_launcher(tmp_path, *words, write_script(tmp_path, LOOP))
    assert launched.returncode == 0, launched.stderr
    assert count_steps(tmp_path / "runs/a") == 3
    assert open_run(tmp_path / "runs/a").state == "complete"
    assert "recorded 3 steps in runs/a" in launched.stderr
    assert open_run(tmp_path / "runs/a").manifest.options["window"]["count"] == 0


def test_the_environment_says_where_and_a_wrong_option_is_left_out(tmp_path: Path) -> None:
    options = '{"window": null, "memry": false, "level": "debug"}'
    script = write_script(tmp_path, LOOP)
    launched = run_launcher(tmp_path, script, PROFILER_OUTPUT_PATH="here", PROFILER_OPTIONS=options)
    (line,) = (line for line in launched.stderr.splitlines() if "PROFILER_OPTIONS" in line)
    assert "no option 'memry'; did you mean 'memory'?" in line
    recorded = open_run(tmp_path / "here").manifest.options
    assert (recorded["window"]["count"], recorded["level"]) == (0, "debug")


@pytest.mark.parametrize("options", ["{bad", "[1]", '"x"'])
def test_options_that_are_no_json_are_reported_and_the_script_runs(tmp_path: Path, options: str) -> None:
    script = write_script(tmp_path, "print('trained')")
    launched = run_launcher(tmp_path, script, PROFILER_OPTIONS=options)
    assert (launched.returncode, launched.stdout) == (0, "trained\n")
    assert launched.stderr.startswith("stepscope: PROFILER_OPTIONS ")


def test_spawned_workers_do_not_record_runs_of_their_own(tmp_path: Path) -> None:
    launched = run_launcher(tmp_path, "-o", "out", write_script(tmp_path, SPAWNED))
    assert launched.returncode == 0, launched.stderr
    assert count_steps(tmp_path / "out") == 3
    assert not (tmp_path / "out/earlier").exists()


@pytest.mark.parametrize("place", ["", "'own'"])
def test_a_profiler_of_the_scripts_own_records_instead(tmp_path: Path, place: str) -> None:
    own = f"import torch\nfrom collector import Profiler\nprofiler = Profiler({place})\n{LOOP}\nprofiler.analyse()\n"
    launched = run_launcher(tmp_path, "-o", "out", write_script(tmp_path, own))
    assert launched.returncode == 0, launched.stderr
    assert count_steps(tmp_path / ("own" if place else "out")) == 3
    assert (tmp_path / "out").exists() == (place == "")
    assert ("the script makes a Profiler of its own, which records to own; nothing was" in launched.stderr) == bool(
        place
    )
    assert not (tmp_path / "out/earlier").exists()


@pytest.mark.parametrize("outside", [True, False])
def test_the_ranks_of_torchrun_share_a_run(tmp_path: Path, outside: bool) -> None:
    script = write_script(tmp_path, DDP)
    torchrun = ["--standalone", "--nproc-per-node=2"]
    worker = [script] if outside else ["-m", "collector.launch", "-o", "out", script]
    launched = run_launcher(tmp_path, *(["-o", "out"] if outside else []), "torchrun", *torchrun, *worker)
    assert launched.returncode == 0, launched.stderr
    run = open_run(tmp_path / "out")
    assert (run.ranks, run.manifest.world_size) == ((0, 1), 2)
    assert [count_steps(tmp_path / "out", rank) for rank in run.ranks] == [6, 6]


def test_the_older_command_is_the_same(tmp_path: Path) -> None:
    command = shutil.which("profiler-run", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("the command is not installed beside this Python")
    done = subprocess.run([command, "--help"], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0
    assert "PROFILER_OUTPUT_PATH" in done.stdout
