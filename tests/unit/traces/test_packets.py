"""Perfetto's packets give the same tables as the JSON of the same events, in every layout that programs write."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from collector.format.schema.errors import TraceError
from collector.traces.format import TraceTables
from collector.traces.importing import import_trace
from collector.traces.reading import UnknownTraceError, is_trace_name, read_trace
from profiler_server.report.building import build_report
from tests.support.packets import ON_GPU, Converter, read_json
from tests.support.reading import train_steps
from tests.support.traces import build_trace, find_sample, training_steps

BASE_NS = 1_751_410_836_000_000_000
LAYOUTS = ("live", "each", "afterwards", "torch")
SAMPLES = ("bert_small_h100", "compile_triton", "vllm_decode_cudagraph", "simple_add", "vit_mi300", "minitoy_mi250")


def convert(trace: dict[str, Any], layout: str) -> Converter:
    """Return the packets of a trace. Those of torch have the work of GPUs apart."""
    made = Converter(trace)
    on_gpu = [event for event in made.slices if layout == "torch" and event.get("cat") in ON_GPU]
    others = [event for event in made.slices if event not in on_gpu] if on_gpu else made.slices
    if layout == "live":
        made.write_live(others)
    elif layout == "each":
        made.write_each(others)
    else:
        made.write_afterwards(others)
        made.write_stages(on_gpu)
    made.write_instants()
    return made


def write_both(folder: Path, trace: dict[str, Any], layout: str) -> tuple[Path, Path]:
    """Write a trace as packets, and the same events in the same order as JSON."""
    made = convert(trace, layout)
    packets, text = folder / "t.pftrace", folder / "t.json"
    packets.write_bytes(made.writer.trace.SerializeToString())
    events = [*made.named, *({**event, "args": _round(event.get("args", {}))} for event in made.events)]
    whole = {"baseTimeNanoseconds": trace.get("baseTimeNanoseconds", 0), "traceEvents": events}
    text.write_text(json.dumps(whole, default=str), encoding="utf-8")
    return packets, text


def _round(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _round(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_round(inner) for inner in value]
    return float(value) if isinstance(value, Decimal) else value


def _list_rows(read: TraceTables) -> dict[str, list[dict[str, Any]]]:
    """Return all tables. Arguments have no order."""
    rows: dict[str, list[dict[str, Any]]] = {name: read.tables[name].to_pylist() for name in read.tables}
    for row in rows["slices"]:
        row["args"] = json.loads(row["args"]) if row["args"] else None
    return rows


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", SAMPLES)
def test_packets_of_a_real_trace_give_the_tables_of_its_json(tmp_path: Path, name: str, layout: str) -> None:
    packets, text = write_both(tmp_path, read_json(find_sample(f"{name}.json.gz")), layout)
    read, expected = read_trace(packets), read_trace(text)
    assert _list_rows(read) == _list_rows(expected)
    assert (read.facts.epoch_unix_ns, read.facts.end_ns) == (expected.facts.epoch_unix_ns, expected.facts.end_ns)
    assert (read.facts.absolute, read.facts.devices) == (expected.facts.absolute, expected.facts.devices)
    assert (read.warnings, read.events_lost) == (expected.warnings, expected.events_lost)


@pytest.mark.parametrize("name", ["deepseek_train", "two_rank_0", "nccl_collectives"])
def test_packets_of_a_large_trace_give_the_tables_of_its_json(tmp_path: Path, name: str) -> None:
    packets, text = write_both(tmp_path, read_json(find_sample(f"{name}.json.gz")), "afterwards")
    assert read_trace(packets).tables == read_trace(text).tables


def test_report_of_packets_is_that_of_the_json(tmp_path: Path) -> None:
    trace = read_json(find_sample("vit_mi300.json.gz"))
    told = []
    for kind, path in zip(("packets", "text"), write_both(tmp_path, trace, "torch"), strict=True):
        path = path.rename(tmp_path / f"{kind}{path.suffix}")
        report = build_report(import_trace(path, tmp_path / "runs" / kind, name="t"))
        assert report["run"].pop("source") == ("perfetto" if kind == "packets" else "kineto")
        told.append(json.loads(json.dumps(report, default=str).replace(path.name, "t")))
    assert told[0] == told[1]


@pytest.mark.parametrize("name", ["t.pftrace", "t.pftrace.gz", "T.PFTRACE", "x"])
def test_a_file_of_packets_is_known_by_its_content(tmp_path: Path, name: str) -> None:
    content = convert(
        build_trace(training_steps(), baseTimeNanoseconds=BASE_NS), "live"
    ).writer.trace.SerializeToString()
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert is_trace_name(name) is (name != "x")
    assert [step["step"] for step in train_steps(read_trace(path))] == [1, 2, 3]


@pytest.mark.parametrize(
    "content", [b"\n\n\n\n\n\n", b"\nHello world, this is no trace at all", b"\n", b"\n\x00\n\x00"]
)
def test_a_text_that_begins_with_a_line_break_is_no_packet(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "notes").write_bytes(content)
    with pytest.raises((UnknownTraceError, TraceError), match=r"is not a trace|is empty"):
        read_trace(tmp_path / "notes")
