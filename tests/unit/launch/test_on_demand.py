"""A window that opens by itself below profiler-run is taken by libkineto, and holds no step up."""

from __future__ import annotations

import json
from pathlib import Path

from collector import open_run
from tests.unit.launch.programs import run_launcher, write_script

# It takes seconds: libkineto asks once a second and begins some seconds later.
TRAINING = """
import pathlib, sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
events, start, number = pathlib.Path(sys.argv[1]) / "profiler/rank_0/events", time.monotonic(), 0
while time.monotonic() - start < 60 and len(list(events.glob("window-*.note.json"))) < 2:
    optimizer.zero_grad()
    model(torch.randn(8, 16)).sum().backward()
    optimizer.step()
    number += 1
    time.sleep(0.005 if number != 500 else 1.0)
time.sleep(1.0)
"""


def test_an_outlier_below_profiler_run_opens_a_window_on_demand(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = json.dumps({"window": [2, 2]})
    script = write_script(tmp_path, TRAINING)
    done = run_launcher(tmp_path, "--output", run, "--options", options, script, run)
    assert done.returncode == 0, done.stderr
    manifest = open_run(run).rank().manifest
    assert manifest.facts["triggers"][0]["on_demand"] is True
    window = next(entry for entry in manifest.windows if entry.trigger == "outlier")
    steps = open_run(run).table("steps").to_pylist()
    detailed = {row["step"] for row in steps if row["detailed"] and row["kind"] == "train"}
    assert set(range(window.first_step, window.last_step + 1)) <= detailed
    operators = open_run(run).table("operators").to_pylist()
    assert {row["step"] for row in operators if row["name"] == "aten::addmm"} >= set(
        range(window.first_step, window.last_step + 1)
    )
