"""Ctrl-C during a garbage collection is not lost: Python drops what a callback of its collector raises."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import gc, sys, time
import torch
from collector import Profiler

profiler = Profiler(sys.argv[1])
(callback,) = [each for each in gc.callbacks if each.__module__ == "collector.signals.interpreter"]
place = callback.__code__.co_freevars.index("now")

def interrupt():
    callback.__closure__[place].cell_contents = time.perf_counter_ns
    raise KeyboardInterrupt

weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], 0.1)
(2 * weight).sum().backward()
optimizer.step()
gc.disable()
print("collecting", flush=True)
callback.__closure__[place].cell_contents = interrupt
gc.collect()
time.sleep(20)
print("not interrupted", flush=True)
"""


def test_ctrl_c_during_a_collection_is_delivered_after_it(tmp_path: object) -> None:
    words = [sys.executable, "-c", _SCRIPT, str(tmp_path)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert "collecting" in ended.stdout
    assert "not interrupted" not in ended.stdout, ended.stderr
    assert "KeyboardInterrupt" in ended.stderr
    assert ended.returncode != 0
    assert "interpreter.py" not in ended.stderr
