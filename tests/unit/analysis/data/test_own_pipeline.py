"""Which stage of a user's own pipeline is the limit, and in which order its stages stand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from collector.format.parts import build_table_from_rows
from profiler_server.analysis.data.replicas import summarize_totals
from profiler_server.analysis.data.stages import select_own, summarize_own
from profiler_server.diagnosis.bottleneck import find_own_bottleneck

SECOND = 1_000_000_000


def stage(name: str, work: float, waits: tuple[float, float], queues: tuple[str, str], replica: int = 0) -> list[Any]:
    """Ten items of one second each, divided into input wait, work and output wait."""
    rows = []
    for number in range(10):
        at = number * SECOND
        for kind, share, queue in (
            ("input_wait", waits[0], queues[0]),
            ("work", work, None),
            ("output_wait", waits[1], queues[1]),
        ):
            length = round(share * SECOND)
            row = {"stage": name, "replica": replica, "kind": kind, "detail": queue, "batch": number}
            rows.append({**row, "start_ns": at, "duration_ns": length, "items": int(kind == "work")})
            at += length
    return rows


def build(*stages: list[Any]) -> pa.Table:
    return build_table_from_rows("stages", [row for rows in stages for row in rows])


def test_the_busiest_stage_that_nothing_holds_up_is_the_limit() -> None:
    own = summarize_own(
        build(
            stage("batch", 0.1, (0.9, 0.0), ("small", "batches")),
            stage("decode", 0.98, (0.01, 0.01), ("paths", "small")),
            stage("read", 0.2, (0.0, 0.8), ("", "paths")),
        )
    )
    assert [entry.name for entry in own] == ["read", "decode", "batch"]
    limit = find_own_bottleneck(own)
    assert limit.stage == "decode"
    for said in ("read, before it, waits for room", "batch, after it, waits for input", "98.0 %"):
        assert said in limit.reason


@pytest.mark.parametrize(
    ("work", "waits", "said"),
    [
        (0.3, (0.0, 0.7), "what takes the results is the limit"),
        (0.6, (0.0, 0.4), "what takes the results is the limit"),
        (0.3, (0.7, 0.0), "what feeds the pipeline is the limit"),
        (0.1, (0.1, 0.1), "No stage works more than"),
    ],
)
def test_no_stage_is_blamed_for_what_lies_outside(work: float, waits: tuple[float, float], said: str) -> None:
    limit = find_own_bottleneck(summarize_own(build(stage("decode", work, waits, ("in", "out")))))
    assert limit.stage is None
    assert said in limit.reason


def test_replicas_count_their_items_each() -> None:
    own = build(*(stage("decode", 0.9, (0.1, 0.0), ("in", "out"), replica) for replica in range(3)))
    (decode,) = summarize_own(own)
    assert (decode.summary.replicas, decode.summary.count) == (3, 30)
    assert decode.summary.busy_frac == pytest.approx(0.9, abs=0.01)
    (total,) = summarize_totals(own)
    assert (total.batches, total.items) == (30, 30)


def test_a_pipeline_that_feeds_back_to_itself_has_an_order() -> None:
    own = summarize_own(
        build(stage("a", 0.5, (0.2, 0.2), ("back", "forth")), stage("b", 0.5, (0.2, 0.2), ("forth", "back")))
    )
    assert sorted(entry.name for entry in own) == ["a", "b"]


def test_rows_of_a_loader_are_not_the_users_own() -> None:
    rows = stage("decode", 0.5, (0.2, 0.2), ("in", "out"))
    loaders = [{**row, "stage": "read", "loader": 0, "epoch": 1} for row in rows]
    assert set(select_own(build(rows, loaders))["stage"].to_pylist()) == {"decode"}
