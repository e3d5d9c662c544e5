"""Record `traces/cnn_cpu` again: four training steps of a small network, by torch.profiler on a CPU, and its own sums.

    python -m tests.golden.record_cnn

The figures that test_carried_traces.py expects are those of the file that is there: a new one brings new figures.
"""

from __future__ import annotations

import csv
import gzip
import json
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, TensorDataset

TRACE = Path(__file__).parent / "traces/cnn_cpu.json.gz"
SUMS = Path(__file__).parent / "traces/cnn_cpu.operators.csv"
_LEFT_OUT = ("host_name", "traceName", "trace_id")


def record_training(path: Path) -> None:
    """Write the trace of steps 2 to 5, counted from 0, and what torch.profiler itself sums up of it."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    pictures = TensorDataset(torch.randn(64, 3, 16, 16), torch.randint(0, 10, (64,)))
    loader = DataLoader(pictures, batch_size=8)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recording = profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=4, repeat=1),
        on_trace_ready=lambda done: write(done, path),
        record_shapes=True,
    )
    with recording as profiler:
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            profiler.step()


def write(done: profile, path: Path) -> None:
    """Write the trace and the sums of the operators."""
    done.export_chrome_trace(str(path))
    sums = sorted((entry.key, entry.count, entry.self_cpu_time_total) for entry in done.key_averages())
    with SUMS.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("name", "count", "self_us"))
        rows.writerows((name, count, f"{self_us:.3f}") for name, count, self_us in sums if name.startswith("aten::"))


def pack(raw: Path, packed: Path) -> None:
    """Pack a trace without the names of the machine and its paths, the same bytes each time."""
    trace = json.loads(raw.read_text(encoding="utf-8"))
    kept = {key: value for key, value in trace.items() if key not in _LEFT_OUT}
    packed.write_bytes(gzip.compress(json.dumps(kept, separators=(",", ":")).encode(), mtime=0))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        record_training(Path(folder) / "trace.json")
        pack(Path(folder) / "trace.json", TRACE)
