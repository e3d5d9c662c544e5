"""A script ends while a detailed window is asked for, open or just closed: it must end as it does under plain Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from collector import open_run
from tests.support import forking
from tests.support.forking import ROOT
from tests.unit.launch.programs import TIMEOUT_S, write_script

# Every step waits for data, so the sidecar asks for a window after some sixty of them (or sooner, for an outlier, where
# the machine is busy). `more` steps then follow.
TRAINING = """
import os, pathlib, signal, sys, time, torch
torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins with it ignored
output, opened_by, more, end = sys.argv[1:]

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        time.sleep(0.02)
        return torch.randn(16)

def is_ordered():
    from collector import active_profiler
    from collector.ring.windows import decode_order
    from collector.ring.words import ORDER_SLOT
    word = active_profiler()._recording.log.header[ORDER_SLOT]
    return word != 0 and (decode_order(word).trigger == "control") == (opened_by == "control")

def train():
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    left, start = int(more), time.monotonic()
    for number, batch in enumerate(torch.utils.data.DataLoader(Slow(), batch_size=1)):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        if output == "plain" or number > 2000:
            return
        if opened_by == "control" and number == 10:
            from collector.format.schema.control import WindowRequest, write_control
            write_control(pathlib.Path(output), WindowRequest(0, 4))
        if number % 4 == 3 and left == int(more) and not (opened_by == "option" or is_ordered()):
            continue
        left -= opened_by == "option" or is_ordered()
        if left < 0:
            return

train()
print("trained")
if end == "exception":
    raise RuntimeError("the disk of the results is full")
if end == "exit":
    sys.exit(3)
if end == "interrupt":
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
"""
CASES = (
    ("trigger", 0, "interrupt"),
    ("trigger", 12, "exception"),
    ("control", 2, "return"),
    ("option", 5, "exit"),
)
"""Who asks for the window, and the steps that follow: none (not open yet), few (open), more (written)."""


def run(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run the script, its end included, in an interpreter of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, timeout=TIMEOUT_S)


@pytest.mark.slow
@pytest.mark.parametrize(("opened_by", "more", "end"), CASES)
def test_a_script_ends_as_without_us(tmp_path: Path, opened_by: str, more: int, end: str) -> None:
    script = write_script(tmp_path, TRAINING)
    plain = forking.run([sys.executable, script.name, "plain", "-", "0", end], cwd=tmp_path)
    output = f"{opened_by}-{more}-{end}"
    options = json.dumps({"window": [2, 1000] if opened_by == "option" else [2, 4]})
    words = ("-m", "collector.launch", "-o", output, "--options", options)
    done = run(tmp_path, *words, script.name, output, opened_by, more, end)
    own = [line for line in done.stderr.splitlines() if not line.startswith(("stepscope:", "[W"))]
    assert (done.returncode, done.stdout, own) == (plain.returncode, "trained\n", plain.stderr.splitlines())
    rank = open_run(tmp_path / output).rank()
    asked = (opened_by,) if opened_by in ("option", "control") else ("outlier", "starvation", "drift")
    windows = [window for window in rank.manifest.windows if window.trigger in asked]
    # An order that comes as a step begins opens the window in it, one step before the script can see the order.
    assert len(windows) in ((1,) if more else (0, 1))
    most = more if opened_by == "option" else more + 1
    assert all(1 <= window.last_step - window.first_step + 1 <= most for window in windows)
