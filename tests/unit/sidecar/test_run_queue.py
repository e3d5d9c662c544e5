"""Waiting for a processor is sampled where the system says it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from collector.format.schema.layout import events_path
from collector.notes import Notes, write_notes
from collector.sidecar.assemblers.resources import ResourcesAssembler


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's schedstat is read")
def test_the_share_of_time_in_the_run_queue_is_sampled(tmp_path: Path) -> None:
    events_path(tmp_path).mkdir(parents=True)
    now = time.time_ns()
    notes = Notes(0, os.getpid(), None, "host", now, now, time.perf_counter_ns(), now)
    write_notes(notes, tmp_path)
    sampler = ResourcesAssembler(tmp_path, notes.clock)
    sampler.poll()
    time.sleep(0.6)
    rows = sampler.poll()["resources"].to_pylist()
    waits = [row["value"] for row in rows if (row["source"], row["metric"]) == ("process", "run_queue_frac")]
    assert len(waits) == 1
    assert 0.0 <= waits[0] <= 1.5
    found = {(row["source"], row["metric"]): row["value"] for row in rows}
    assert found["process", "main_thread_cores"] >= 0.0
    assert found["process", "scheduled_per_s"] > 0.0  # it slept and was woken
    assert found["system", "usable_cpu_cores"] >= 0.0
