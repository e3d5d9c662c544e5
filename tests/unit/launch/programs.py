"""Start `stepscope run` as a process of its own, on small scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support import forking
from tests.support.forking import ROOT as ROOT

TIMEOUT_S = 300
LOOP = """
import sys, torch
torch.set_num_threads(1)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(24, 16))
for (batch,) in torch.utils.data.DataLoader(data, batch_size=8):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
"""


def write_script(folder: Path, text: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def run_launcher(folder: Path, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `stepscope run words…` in that folder; if it hangs, end it with the processes that it has started."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-m", "collector.launch", *map(str, words)]
    return forking.run(command, cwd=folder, env=environment, timeout=TIMEOUT_S)
