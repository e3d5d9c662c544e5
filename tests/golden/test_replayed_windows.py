"""Real traces are replayed within 3 % of their measured time, or say that they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.traces import import_trace
from profiler_server.analysis.replay.building import build_graph
from profiler_server.analysis.replay.graph import measure_replay
from profiler_server.analysis.replay.window import read_window
from tests.support.traces import find_sample, list_samples

NOT_EXPLAINED = {"diff_test.json.gz", "negative_queue.json.gz", "vllm_decode_cudagraph.json.gz"}
"""Their streams wait for events that the trace does not name, or for work from before it (docs/diagnosis.md)."""
WITHOUT_DEVICE = {"cpu_only_rank34.pt.trace.json.gz"}


@pytest.mark.parametrize("file", [name for name in list_samples() if name not in NOT_EXPLAINED | WITHOUT_DEVICE])
def test_a_real_trace_replays_as_it_was_measured(tmp_path: Path, file: str) -> None:
    window = read_window(import_trace(find_sample(file), tmp_path / "run").rank())
    assert window is not None
    graph = build_graph(window)
    assert graph is not None
    assert measure_replay(graph) == pytest.approx(graph.measured_ns, rel=0.03)
