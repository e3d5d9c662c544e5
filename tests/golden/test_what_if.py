"""What-if figures of published jobs, against those of the program of the study that published them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.format.run import Run
from collector.traces.importing import import_trace
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.what_if.pipelines import recall_what_if
from profiler_server.facts.ranks import JobSlowdown
from profiler_server.report.building import build_report
from tests.support.report_shape import SHAPE, check
from tests.support.traces import SAMPLES

CARRIED = Path(__file__).parent / "traces" / "pipeline_job.parquet"
LARGE = SAMPLES.parent / "straggler" / "trace-AR.parquet"
OPERATIONS = {
    "forward-compute": 1.0874989663,
    "backward-compute": 1.0741564724,
    "embedding-grads-all-reduce": 1.0095504024,
    "grads-reduce-scatter": 1.0026669526,
    "optimizer-clip-main-grad": 1.0023506225,
    "optimizer": 1.0014767395,
    "params-all-gather": 1.0011307741,
    "layernorm-grads-all-reduce": 1.0000026919,
    "gc": 1.0,
    "backward-pp-comm": 0.9999929932,
    "forward-pp-comm": 0.9998586213,
}
STAGES = {3: 1.2322559543, 0: 0.9980450635, 1: 0.9830562531, 2: 0.9824931310}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return import_trace(CARRIED, tmp_path_factory.mktemp("runs") / "job")


@pytest.fixture(scope="module")
def found(run: Run) -> JobSlowdown:
    found = recall_what_if(run, summarize_ranks(run))
    assert found is not None
    return found


def test_slowdown_and_blame_are_those_of_the_study(found: JobSlowdown) -> None:
    assert found.slowdown == pytest.approx(1.1787022809, rel=1e-6)
    assert found.discrepancy_frac == pytest.approx(0.0192161756, rel=1e-4)
    assert found.waste_frac == pytest.approx(1 - 1 / 1.1787022809, rel=1e-6)
    assert found.by_operation == pytest.approx(OPERATIONS, rel=1e-6)
    assert found.by_stage == pytest.approx(STAGES, rel=1e-6)
    assert found.worker_share == pytest.approx(0.0314042691, rel=1e-4)
    assert found.stage_share == pytest.approx(1.2193563789, rel=1e-5)
    assert found.by_rank is not None
    assert sorted(found.by_rank, key=lambda rank: found.by_rank[rank])[-2:] == [6, 7]  # type: ignore[index]


def test_each_rank_has_its_steps_and_their_parts_sum_to_them(run: Run) -> None:
    assert run.ranks == tuple(range(8))
    steps = run.table("steps", 6).to_pylist()
    assert len(steps) == 32
    parts = ("gap", "data_wait", "h2d", "forward", "backward", "communication", "optimizer", "tail")
    assert all(sum(row[f"{name}_ns"] for name in parts) == row["duration_ns"] for row in steps)
    assert all(row["forward_ns"] > 0 and row["communication_ns"] > 0 for row in steps)


@pytest.mark.skipif(not LARGE.is_file(), reason=f"{LARGE} is not there")
def test_a_job_of_sixty_four_ranks_with_one_slow_worker(tmp_path: Path) -> None:
    run = import_trace(LARGE, tmp_path / "job")
    assert run.manifest.world_size == 64
    found = recall_what_if(run, summarize_ranks(run))
    expected = json.loads((LARGE.parent / "result-AR.json").read_text(encoding="utf-8"))
    assert found is not None
    assert found.mend_rank_gain_ns is not None
    assert found.slowdown == pytest.approx(expected["blocking_slowdown"], rel=1e-6)
    assert found.by_operation == pytest.approx(expected["blocking_decompose_by_optype"], rel=1e-5)
    assert found.worker_share == pytest.approx(1.0017012777, rel=1e-5)
    assert found.stage_share == pytest.approx(-0.0012119640, rel=1e-3)
    assert max(found.mend_rank_gain_ns, key=lambda rank: found.mend_rank_gain_ns[rank]) == 0  # type: ignore[index]


def test_the_report_carries_the_figures(run: Run) -> None:
    found = build_report(run)["what_if"]
    assert found["slowdown"] == pytest.approx(1.1787022809, rel=1e-6)
    assert set(found["by_rank"]) == {str(rank) for rank in range(8)}
    assert found["method"] == "replay"
    check(found, SHAPE["what_if"])
