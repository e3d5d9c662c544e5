"""Operations of a job in one Parquet file: what is imported of it, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collector.format.schema.errors import TraceError
from collector.traces.importing import import_trace
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.what_if.pipelines import recall_what_if
from profiler_server.facts.ranks import JobSlowdown

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


def repeat(value: Any) -> pa.Array:
    return pa.array([value] * pq.read_metadata(CARRIED).num_rows)


@pytest.mark.parametrize(
    ("column", "make", "message"),
    [
        ("seq_id", lambda: None, "it has no column 'seq_id'"),
        *(
            ("duration", partial(change, "duration", 7, value), r"row 8 has duration .* no time within a day")
            for value in (float("nan"), float("inf"), 1e9)
        ),
        ("stage", partial(repeat, "x"), "'stage' does not hold whole numbers"),
        ("optype", partial(repeat, [1]), "'optype' does not hold names"),
        ("optype", partial(change, "optype", 7, None), "row 8 has no optype"),
    ],
)
def test_a_column_that_cannot_be_is_named(
    tmp_path: Path, column: str, make: Callable[[], pa.Array | None], message: str
) -> None:
    with pytest.raises(TraceError, match=message):
        import_trace(write_changed(tmp_path, **{column: make()}), tmp_path / "run")


def test_a_file_that_is_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.parquet"
    path.write_bytes(CARRIED.read_bytes()[:5000])
    with pytest.raises(TraceError, match="is damaged"):
        import_trace(path, tmp_path / "run")


def judge(folder: Path, table: pa.Table) -> JobSlowdown:
    pq.write_table(table, folder / "job.parquet")
    run = import_trace(folder / "job.parquet", folder / "run")
    found = recall_what_if(run, summarize_ranks(run))
    assert found is not None
    return found


def test_steps_that_lack_an_operation_are_left_out(tmp_path: Path) -> None:
    assert judge(tmp_path, pq.read_table(CARRIED).slice(1)).slowdown == pytest.approx(1.18, abs=0.01)


def test_operations_that_are_no_pipeline_give_a_reason(tmp_path: Path) -> None:
    table = pq.read_table(CARRIED)
    kinds = table.column("optype").cast(pa.string()).to_pylist()
    found = judge(tmp_path, table.filter(pa.array([kind != "optimizer" for kind in kinds])))
    assert found.slowdown is None
    assert "no step ends with an optimizer" in found.reason
