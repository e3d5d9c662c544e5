"""Launchers that stand before the script: what they start is recorded, and ends as without us."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from collector import open_run
from collector.format.schema.errors import UsageError
from collector.launch.launchers import find_launcher, wrap_workers
from collector.launch.script import Program, leave_out_python
from tests.unit.launch.programs import LOOP, run_launcher, write_script

TELL = "import sys, torch\nprint(sys.argv[1:], sys.flags.optimize)\n" + LOOP
# As much of deepspeed as its command line needs: it starts one worker with a rank before the script's arguments.
DEEPSPEED = """
import argparse, subprocess, sys
def parse_args(args=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_gpus", type=int, default=-1)
    parser.add_argument("--module", action="store_true")
    parser.add_argument("--no_python", action="store_true")
    parser.add_argument("user_script")
    parser.add_argument("user_args", nargs=argparse.REMAINDER)
    return parser.parse_args(args=args)
if __name__ == "__main__":
    given = parse_args()
    flag = ["-m"] if given.module else []
    sys.exit(subprocess.call([sys.executable, "-u", *flag, given.user_script, "--local_rank=0", *given.user_args]))
"""


def count_steps(path: Path) -> int:
    return open_run(path).rank().count_steps()


@pytest.mark.parametrize("words", [("python", "train.py"), (sys.executable, "-m", "train")])
def test_a_python_before_the_script_is_left_out(tmp_path: Path, words: tuple[str, ...]) -> None:
    write_script(tmp_path, TELL)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    launched = run_launcher(tmp_path, "-o", "out", "--options", '{"window": null}', *words, "--lr", "1", PATH=path)
    assert launched.stdout == "['--lr', '1'] 0\n", launched.stderr
    assert count_steps(tmp_path / "out") == 3


def test_another_version_in_the_same_folder_is_another_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = (tmp_path / name for name in ("python3", "python3.9"))
    for file in (mine, other):
        file.write_text("")
        file.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(mine))
    assert leave_out_python(Program(str(mine), False, ("train.py",))).name == "train.py"
    with pytest.raises(UsageError, match="another Python"):
        leave_out_python(Program(str(other), False, ("train.py",)))


def test_accelerate_launch_has_its_worker_recorded(tmp_path: Path) -> None:
    write_script(tmp_path, TELL)
    launched = run_launcher(
        tmp_path, "-o", "out", "--options", '{"window": null}', "accelerate", "launch", "--cpu", "--num_processes", "1",
        "train.py", "--lr", "1", ACCELERATE_CONFIG_FILE=str(tmp_path / "none.yaml"),
    )  # fmt: skip
    assert launched.stdout == "['--lr', '1'] 0\n", launched.stderr
    assert count_steps(tmp_path / "out") == 3


def test_deepspeed_has_its_worker_recorded_with_the_rank_that_it_gives(tmp_path: Path) -> None:
    for folder in ("deepspeed", "deepspeed/launcher"):
        (tmp_path / folder).mkdir()
        write_script(tmp_path, "", f"{folder}/__init__.py")
    write_script(tmp_path, DEEPSPEED, "deepspeed/launcher/runner.py")
    write_script(tmp_path, TELL)
    root = os.pathsep.join((str(tmp_path), str(Path(__file__).parents[3])))
    words = ("-o", "out", "--options", '{"window": null}', "deepspeed", "--num_gpus", "1", "train.py", "--lr", "1")
    launched = run_launcher(tmp_path, *words, PYTHONPATH=root)
    assert launched.stdout == "['--local_rank=0', '--lr', '1'] 0\n", launched.stderr
    assert count_steps(tmp_path / "out") == 3


@pytest.mark.parametrize(
    ("words", "wrapped"),
    [
        (
            ("--nproc-per-node=2", "train.py", "-m"),
            ("--nproc-per-node=2", "-m", "collector.launch", "-o", "x", "train.py", "-m"),
        ),
        (("-m", "pkg.train", "a"), ("-m", "collector.launch", "-o", "x", "-m", "pkg.train", "a")),
        (("-m", "collector.launch", "train.py"), ("-m", "collector.launch", "train.py")),
        (("-m", "stepscope", "run", "train.py"), ("-m", "stepscope", "run", "train.py")),
    ],
)
def test_the_command_of_the_workers_is_wrapped_once(words: tuple[str, ...], wrapped: tuple[str, ...]) -> None:
    program = Program("torchrun", False, words)
    launcher = find_launcher(program)
    assert launcher is not None
    assert wrap_workers(launcher, program, ("-o", "x")) == Program("torch.distributed.run", True, wrapped)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((sys.executable, "-O", "train.py"), "with flags of Python: python -O -m stepscope run train.py"),
        ((sys.executable,), "records a script or, after -m, a module"),
        (("--try", "python3.1", "-m", "train"), "python3.1 is another Python than"),
        (("accelerate", "config"), "only accelerate launch … starts workers"),
        (("deepspeed", "train.py"), "deepspeed is not installed"),
        (("bash", "train.sh"), "bash is a command, not a script; put `stepscope run` behind it"),
    ],
)  # fmt: skip
def test_what_cannot_be_recorded_is_told_in_a_line(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    launched = run_launcher(tmp_path, *words)
    assert launched.returncode == 2
    (line,) = launched.stderr.splitlines()
    assert told in line


def test_a_script_named_like_a_python_is_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_script(tmp_path, "", "python3")
    assert leave_out_python(Program("python3", False, ())).name == "python3"
