"""A small script with a slow function and its mended twin, both recorded: the second run says on the terminal what it
changed."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.launch.programs import run_launcher, write_script

SLOW = """
import torch
torch.set_num_threads(1)
torch.manual_seed(0)

def triplet_loss(points):
    total = points.new_zeros(())
    for anchor in points[:120]:
        total = total + torch.relu(1.0 - (anchor - points).square().sum(1)).mean()
    return total / 120

def main():
    model = torch.nn.Linear(64, 32)
    optimizer = torch.optim.Adam(model.parameters())
    rows = torch.randn(256, 64)
    for _ in range(320):
        optimizer.zero_grad()
        points = model(rows)
        loss = triplet_loss(points)
        loss.backward()
        optimizer.step()

main()
"""
MENDED = SLOW.replace(
    "triplet_loss(points)\n        loss.b",
    "torch.relu(1.0 - torch.cdist(points[:120], points).square()).mean()\n        loss.b",
).replace("range(320)", "range(900)")  # else hardly a sample is taken


def test_the_run_of_the_mended_script_names_what_is_gone(tmp_path: Path) -> None:
    for text in (SLOW, MENDED):
        launched = run_launcher(tmp_path, "-o", "runs/fit", write_script(tmp_path, text), PROFILER_VERDICT="1")
        assert launched.returncode == 0, launched.stderr
    lines = [line for line in launched.stderr.splitlines() if line.startswith("stepscope: Since 20")]
    assert len(lines) == 2, launched.stderr
    assert lines[1].endswith(": Changed: train.py +2 −2 lines.")
    assert "triplet_loss()" in lines[0]
    assert re.search(r"” (was|were) taken; no step had been predicted", lines[0])
    assert re.search(r"triplet_loss\(\) (is gone|takes at most)", lines[0])
