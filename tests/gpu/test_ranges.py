"""Device times of ranges, on a real device."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import collector
from tests.support.recording import record as record_loop

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def test_a_range_has_the_device_time_of_what_it_launched(tmp_path: Path) -> None:
    side = torch.randn(4096, 4096, device="cuda")
    (side @ side).sum().item()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def loop() -> None:
        begin.record()
        with collector.record("multiply"):
            for _ in range(20):
                side @ side
        end.record()
        torch.cuda.synchronize()
        with collector.record("host only"):
            time.sleep(0.02)

    rows = record_loop(tmp_path, loop).run.frame("ranges").set_index("path")
    assert rows.device_ns["multiply"] == pytest.approx(begin.elapsed_time(end) * 1e6, rel=0.1)
    assert rows.duration_ns["multiply"] < rows.device_ns["multiply"]
    assert rows.device_ns["host only"] == 0


def test_ranges_behind_a_full_stream_have_their_own_time(tmp_path: Path) -> None:
    side = torch.randn(4096, 4096, device="cuda")
    (side @ side).sum().item()

    def loop() -> None:
        for _ in range(50):
            side @ side
        with collector.record("nothing"):
            pass
        with collector.record("one"):
            side @ side
        torch.cuda.synchronize()

    rows = record_loop(tmp_path, loop).run.frame("ranges").set_index("path")
    assert rows.device_ns["nothing"] < 50_000 < rows.device_ns["one"]
