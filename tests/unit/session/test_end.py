"""The end of a training waits for nothing that does not get on, says what is wrong, and gives back what it took."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from collector import Profiler
from collector.format import parts
from collector.format.run import Run, open_run
from collector.options import parse_options
from collector.session.recording import Recording
from collector.sidecar.process import recover_run
from tests.support import shapes
from tests.support.scripts import run_script
from tests.support.waiting import wait_for
from tests.unit.session.test_survival import has_ended

BEGIN = """
import os, resource, shutil, signal, sys, time, torch
from collector import Profiler
from collector.session import beside
beside.PATIENCE_S = 1.0
sys.stderr = sys.stdout
torch.set_num_threads(1)
model = torch.nn.Linear(1, 1)
model(torch.ones(1, 1)).sum().backward()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train(profiler, steps):
    for _ in range(steps):
        optimizer.step()
        profiler.step()

def find_sidecar():
    return profiler._recording._beside.pid
"""


def run(folder: Path, text: str) -> str:
    return run_script(folder, BEGIN + text)


def test_what_killed_recorder_processes_left_is_not_done_in_the_training(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        """
from pathlib import Path
killed = Path("killed")
killed.write_text("#!/bin/sh\\nkill -9 $$\\n")
killed.chmod(0o700)
sys.executable = str(killed.absolute())
profiler = Profiler("out", window=None)
train(profiler, 10)
profiler.analyse()
print("ended")
""",
    )
    assert "was killed each time, which the system does where memory is full" in printed
    assert "recover" in printed
    assert "ended" in printed
    assert set(recover_run(tmp_path / "out").values()) == {"recovered"}
    assert open_run(tmp_path / "out").rank(0).count_steps() == 10


def test_our_processes_are_what_the_system_ends_first(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        """
profiler = Profiler("out", window=None)
train(profiler, 3)
deadline = time.monotonic() + 60
while (found := open(f"/proc/{find_sidecar()}/oom_score_adj").read().strip()) != "1000" and time.monotonic() < deadline:
    time.sleep(0.02)
print("said", found)
profiler.analyse()
""",
    )
    assert "said 1000" in printed


def test_a_recorder_process_that_is_stopped_holds_nothing_up_and_costs_no_step(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        """
profiler = Profiler("out", window=None)
train(profiler, 10)
time.sleep(2)
os.kill(find_sidecar(), signal.SIGSTOP)
train(profiler, 10)
profiler.analyse()
""",
    )
    assert "recorded 20 steps in" in printed
    assert open_run(tmp_path / "out").state == "complete"


def test_a_run_that_is_left_to_a_stopped_recorder_process_is_finished_by_another(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
profiler = Profiler("out", window=None)
train(profiler, 10)
os.kill(find_sidecar(), signal.SIGSTOP)
time.sleep(0.5)
sys.exit(0)
""",
    )
    rank = Run(tmp_path / "out").rank(0)
    wait_for(lambda: has_ended(tmp_path / "out"))
    assert (Run(tmp_path / "out").state, rank.count_steps()) == ("complete", 10)


def test_an_output_that_was_removed_is_said_at_once_and_not_made_again(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        """
profiler = Profiler("out", window=None)
train(profiler, 10)
time.sleep(2)
shutil.rmtree("out")
train(profiler, 10)
before = time.monotonic()
profiler.analyse()
assert time.monotonic() - before < 20
""",
    )
    assert "the run in out is not complete" in printed
    assert "rank_0 was removed while it was recorded" in printed
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.ENOSPC, "Free space on the disk"), (errno.EIO, "See to the disk")]
)
def test_a_disk_that_takes_nothing_is_named_with_the_command_that_completes_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    recording = Recording(tmp_path, parse_options({"window": None}), with_sidecar=False)
    recording.resume()
    shapes.plain()

    def refuse(*arguments: Any) -> None:
        raise OSError(number, os.strerror(number), "the/file")

    with monkeypatch.context() as full:
        full.setattr(parts, "write_part", refuse)
        problem = recording.finish()
    assert f"{os.strerror(number)} (the/file). {remedy}, then run `stepscope recover {tmp_path}`" in problem
    opened = open_run(tmp_path).rank(0)
    assert [warning.code for warning in opened.manifest.warnings] == ["not_written"]
    assert recover_run(tmp_path) == {0: "recovered"}
    assert open_run(tmp_path).state == "complete"
    assert opened.count_steps() == 10
    assert open_run(tmp_path).rank(0).manifest.warnings == ()


def test_a_sweep_of_many_profilers_keeps_neither_descriptors_nor_memory(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        """
import gc
from collector.session import recording
from collector.session.beside import Beside
Beside.start = lambda self: None  # so many processes would take minutes
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

def count():
    gc.collect()
    with open("/proc/self/maps") as file:
        maps = file.read()
    return len(os.listdir("/proc/self/fd")), maps.count("stepscope") + maps.count("words.ring")

def count_kib():
    gc.collect()
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmSize"))

before = after = None
for number in range(60):
    profiler = Profiler(f"out/{number}", window=None, data_pipeline=False)
    train(profiler, 3)
    profiler.analyse()
    if number == 9:
        before, size = count(), count_kib()
assert count() == before, (count(), before)
assert count_kib() < size + 50 * 4096, (count_kib(), size)
print("whole", sum(os.path.exists(f"out/{n}/profiler/rank_0/steps.parquet") for n in range(60)))
""",
    )
    assert "whole 60" in printed


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "Free space on the disk"),
        (errno.EMFILE, "Raise the limit of open files"),
        (errno.EROFS, "writable"),
    ],
)
def test_a_recording_that_cannot_begin_names_the_remedy_of_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int, remedy: str
) -> None:
    def refuse(*arguments: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    Profiler(tmp_path / "run", window=None).analyse()
    (line,) = capsys.readouterr().err.splitlines()
    assert os.strerror(number) in line
    assert remedy in line
    assert ("space" in line.replace(os.strerror(number), "")) == (number == errno.ENOSPC)
