"""Gauges in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from collector.format.schema.errors import UsageError
from profiler_server.fleet.gauges import RunGauges
from profiler_server.fleet.metrics import METRICS

PREFIX = "stepscope_"


def render_metrics(runs: Iterable[RunGauges]) -> tuple[bytes, str]:
    """Return the metrics of some runs, and their media type. UsageError if prometheus_client is not installed."""
    try:
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
        from prometheus_client.core import GaugeMetricFamily
        from prometheus_client.registry import Collector
    except ImportError:
        raise UsageError("metrics need prometheus_client: pip install 'stepscope[server]'") from None
    found = tuple(runs)

    class Reading(Collector):
        def collect(self) -> Iterator[GaugeMetricFamily]:
            for metric in METRICS:
                family = GaugeMetricFamily(PREFIX + metric.name, metric.meaning, labels=("run", *metric.labels))
                for run in found:
                    for labels, value in metric.read(run):
                        family.add_metric([run.label, *labels.values()], value)
                yield family

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Reading())
    return generate_latest(registry), CONTENT_TYPE_LATEST
