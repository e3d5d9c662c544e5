"""Operations of a job in one Parquet file: what is imported of it, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collector.format.schema.errors import TraceError
from collector.traces import import_trace
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.what_if.pipelines import recall_what_if

CARRIED = Path(__file__).parents[2] / "golden/traces/pipeline_job.parquet"


def write_changed(folder: Path, **columns: Any) -> Path:
    table = pq.read_table(CARRIED)
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.remove_column(at) if values is None else table.set_column(at, name, values)
    path = folder / "job.parquet"
    pq.write_table(table, path)
    return path


def change(name: str, row: int, value: Any) -> pa.Array:
    values = pq.read_table(CARRIED, columns=[name]).column(0).to_pylist()
    values[row] = value
    return pa.array(values)


def test_a_column_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="it has no column 'seq_id'"):
        import_trace(write_changed(tmp_path, seq_id=None), tmp_path / "run")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e9])
def test_a_time_that_cannot_be_is_named_with_its_row(tmp_path: Path, value: float) -> None:
    with pytest.raises(TraceError, match=r"row 8 has duration .* no time within a day"):
        import_trace(write_changed(tmp_path, duration=change("duration", 7, value)), tmp_path / "run")


def test_texts_in_a_column_of_numbers_are_refused(tmp_path: Path) -> None:
    texts = pa.array(["x"] * pq.read_metadata(CARRIED).num_rows)
    with pytest.raises(TraceError, match="'stage' does not hold whole numbers"):
        import_trace(write_changed(tmp_path, stage=texts), tmp_path / "run")


def test_kinds_that_are_no_texts_are_refused(tmp_path: Path) -> None:
    lists = pa.array([[1]] * pq.read_metadata(CARRIED).num_rows)
    with pytest.raises(TraceError, match="'optype' does not hold names"):
        import_trace(write_changed(tmp_path, optype=lists), tmp_path / "run")
    with pytest.raises(TraceError, match="row 8 has no optype"):
        import_trace(write_changed(tmp_path, optype=change("optype", 7, None)), tmp_path / "run")


def test_a_file_that_is_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.parquet"
    path.write_bytes(CARRIED.read_bytes()[:5000])
    with pytest.raises(TraceError, match="is damaged"):
        import_trace(path, tmp_path / "run")


def test_steps_that_lack_an_operation_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "job.parquet"
    pq.write_table(pq.read_table(CARRIED).slice(1), path)
    run = import_trace(path, tmp_path / "run")
    found = recall_what_if(run, summarize_ranks(run))
    assert found is not None
    assert found.slowdown == pytest.approx(1.18, abs=0.01)


def test_operations_that_are_no_pipeline_give_a_reason(tmp_path: Path) -> None:
    table = pq.read_table(CARRIED)
    kinds = table.column("optype").cast(pa.string()).to_pylist()
    path = tmp_path / "job.parquet"
    pq.write_table(table.filter(pa.array([kind not in ("optimizer",) for kind in kinds])), path)
    run = import_trace(path, tmp_path / "run")
    found = recall_what_if(run, summarize_ranks(run))
    assert found is not None
    assert found.slowdown is None
    assert "no step ends with an optimizer" in found.reason
