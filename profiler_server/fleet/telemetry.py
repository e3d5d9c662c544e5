"""The sender of runs' figures to a monitoring system: OpenTelemetry's periodic reader sends them to a receiver by
OTLP."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from collector.format.schema.errors import UsageError
from collector.version import __version__
from profiler_server.fleet.gauges import RunGauges
from profiler_server.fleet.metrics import METRICS, Metric

PREFIX = "stepscope."
INTERVAL_S = 15.0
SEND_LIMIT_S = 5.0
_METRICS_PATH = "/v1/metrics"
Read = Callable[[], Sequence[RunGauges]]
log = logging.getLogger("stepscope")


def find_address(endpoint: str) -> str:
    """Return the URL to which metrics are sent: `endpoint`, with the path `/v1/metrics` if it has none. Raises
    UsageError for an invalid URL.
    """
    try:
        parts = urlsplit(endpoint)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise UsageError(f"--otlp-endpoint takes an address such as http://127.0.0.1:4318, not {endpoint[:200]!r}")
    return urlunsplit(parts._replace(path=_METRICS_PATH)) if parts.path in ("", "/") else endpoint


def check_installed() -> None:
    try:
        import opentelemetry.exporter.otlp.proto.http.metric_exporter
        import opentelemetry.sdk.metrics  # noqa: F401
    except ImportError:
        raise UsageError("--otlp-endpoint needs OpenTelemetry: pip install 'stepscope[fleet]'") from None


class Telemetry:
    """A sender of the figures that `read` returns, to an OTLP receiver at `endpoint`, every `interval_s` seconds until
    closed.

    A warning is logged when the receiver stops answering, and another when it answers again.
    """

    def __init__(self, endpoint: str, read: Read, interval_s: float = INTERVAL_S) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource

        self._read = read
        reader = PeriodicExportingMetricReader(_make_exporter(find_address(endpoint)), interval_s * 1e3)
        about = Resource.create({"service.name": "stepscope", "service.version": __version__})
        self._provider = MeterProvider([reader], about, shutdown_on_exit=False)
        meter = self._provider.get_meter("stepscope", __version__)
        for metric in METRICS:
            callback: Any = self._make_callback(metric)
            meter.create_observable_gauge(PREFIX + metric.name, [callback], metric.unit, metric.meaning)

    def close(self) -> None:
        """Send the current figures a last time, and stop sending."""
        self._provider.shutdown(timeout_millis=SEND_LIMIT_S * 1e3)

    def _make_callback(self, metric: Metric) -> Callable[[Any], Iterable[Any]]:
        def observe(options: Any) -> Iterator[Any]:
            from opentelemetry.metrics import Observation

            for run in self._read():
                for labels, value in metric.read(run):
                    yield Observation(value, {"run": run.label, **labels})

        return observe


def _make_exporter(address: str) -> Any:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import MetricExportResult

    # These loggers log every attempt, partly with tracebacks. One line for a failure and one for a recovery are enough.
    for name in ("opentelemetry.exporter", "opentelemetry.sdk.metrics"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)

    class Exporter(OTLPMetricExporter):
        was_told = False

        def export(self, *arguments: Any, **options: Any) -> Any:
            result = super().export(*arguments, **options)
            failed = result is not MetricExportResult.SUCCESS
            if failed and not self.was_told:
                log.warning("stepscope: %s takes no metrics; it is asked again every %g s", address, INTERVAL_S)
            elif self.was_told and not failed:
                log.warning("stepscope: %s takes metrics again", address)
            self.was_told = failed
            return result

    return Exporter(endpoint=address, timeout=SEND_LIMIT_S)
