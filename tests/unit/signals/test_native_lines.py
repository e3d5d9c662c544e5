"""PyTorch's line about memory that is older than a window is ours; whatever else is written to stderr is the user's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collector.signals.window import leave_out_lines

TRAINING = """
import sys, torch
from collector import Profiler

torch.set_num_threads(1)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
held = [torch.ones(8) for _ in range(40)]
with Profiler(sys.argv[1], window=(3, 3)):
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()
        del held[:2]
sys.stderr.write("mine\\n")
"""


def test_only_known_lines_are_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    with leave_out_lines(b"of unknown size"):
        os.write(2, b"before\n[W] a block of unknown size was freed\nafter, without an end")
    os.write(2, b"!\n")
    assert capfd.readouterr().err == "before\nafter, without an end!\n"


def test_an_error_inside_leaves_stderr_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="ours"), leave_out_lines(b"x"):
        raise ValueError("ours")
    os.write(2, b"x is written\n")
    assert capfd.readouterr().err == "x is written\n"


def test_a_closed_stderr_is_no_error() -> None:
    code = "import os; os.close(2)\nfrom collector.signals.window import leave_out_lines\n"
    code += "with leave_out_lines(b'x'):\n    print('inside')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "inside\n"


def test_a_window_prints_no_line_about_memory_and_keeps_the_users(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    command = [sys.executable, str(script), str(tmp_path / "run")]
    environment = {**os.environ, "PROFILER_VERDICT": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=environment)
    assert "unknown size" not in done.stderr
    assert "mine" in done.stderr
    assert (tmp_path / "run/profiler/rank_0/memory.parquet").exists()
