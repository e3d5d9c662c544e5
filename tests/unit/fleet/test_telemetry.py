"""Metrics that are pushed, to a small receiver on this machine."""

from __future__ import annotations

import gzip
import logging
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from collector.format.schema.errors import UsageError
from profiler_server.fleet.gauges import Gauges
from profiler_server.fleet.metrics import METRICS
from profiler_server.fleet.telemetry import Telemetry, find_address
from profiler_server.settings import Settings
from profiler_server.store.catalog import Catalog
from profiler_server.web.serving import check_telemetry
from tests.support.live import build_live_run

PATIENCE_S = 60.0


class Receiver(BaseHTTPRequestHandler):
    server: Any

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        raw = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
        self.server.received.put((self.path, ExportMetricsServiceRequest.FromString(raw)))
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def receive(status: int = 200) -> Iterator[tuple[str, queue.Queue[tuple[str, Any]]]]:
    server: Any = HTTPServer(("127.0.0.1", 0), Receiver)
    server.received, server.status = queue.Queue(), status
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.received
    finally:
        server.shutdown()
        server.server_close()


def test_a_receiver_gets_the_same_gauges(tmp_path: Path) -> None:
    build_live_run(tmp_path / "now", ranks=2)
    gauges = Gauges(Catalog(tmp_path))
    with receive() as (address, received):
        telemetry = Telemetry(address, gauges.read, interval_s=0.2)
        try:
            path, request = received.get(timeout=PATIENCE_S)
        finally:
            telemetry.close()
    assert path == "/v1/metrics"
    metrics = {m.name: m for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics}
    (run,) = gauges.read()
    assert set(metrics) == {f"stepscope.{metric.name}" for metric in METRICS if any(True for _ in metric.read(run))}
    (point,) = metrics["stepscope.step_seconds"].gauge.data_points
    assert point.as_double == pytest.approx((run.step_ns or 0) * 1e-9)
    assert {a.key: a.value.string_value for a in point.attributes} == {"run": "now"}
    assert len(metrics["stepscope.phase_seconds"].gauge.data_points) == len(run.phases_ns or {})


def test_a_receiver_that_refuses_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with receive(status=404) as (address, received), caplog.at_level(logging.WARNING):
        telemetry = Telemetry(address, Gauges(Catalog(tmp_path)).read, interval_s=0.1)
        build_live_run(tmp_path / "now")
        telemetry._read = lambda: Gauges(Catalog(tmp_path)).read()
        try:
            for _ in range(3):
                received.get(timeout=PATIENCE_S)
        finally:
            telemetry.close()
    assert [record.name for record in caplog.records] == ["stepscope"]
    assert address in caplog.text


@pytest.mark.parametrize("wrong", ["", "127.0.0.1:4318", "ftp://x", "http://", "http://x:y"])
def test_what_is_no_address_is_refused_before_the_server_starts(wrong: str) -> None:
    with pytest.raises(UsageError, match="--otlp-endpoint"):
        find_address(wrong)


def test_an_address_without_a_path_gets_that_of_the_protocol() -> None:
    assert find_address("http://h:4318") == find_address("http://h:4318/") == "http://h:4318/v1/metrics"
    assert find_address("https://h/otlp/v1/metrics") == "https://h/otlp/v1/metrics"


def test_without_opentelemetry_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    with pytest.raises(UsageError, match=r"stepscope\[fleet\]"):
        check_telemetry(Settings(tmp_path, otlp_endpoint="http://127.0.0.1:1"))
