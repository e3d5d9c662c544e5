"""The metrics that monitoring systems get of runs: name, unit, meaning and values; and their text for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from collector.format.schema.errors import UsageError
from profiler_server.fleet.gauges import RunGauges

_PREFIX = "stepscope_"
STATES = ("recording", "complete", "crashed")
Values = Iterator[tuple[Mapping[str, str], float]]
"""Labels other than `run`, and a value in base units (seconds, ratios)."""


@dataclass(frozen=True)
class Metric:
    """One exported metric, without the exporter's prefix in its `name`. `meaning` is a sentence for readers. `read`
    yields its values of a run. `labels` are its labels other than `run`.

    `unit` is "s", "1" for a ratio or number, or the counted thing in braces, such as "{step}".
    """

    name: str
    unit: str
    meaning: str
    read: Callable[[RunGauges], Values]
    labels: tuple[str, ...] = ()


def _plain(read: Callable[[RunGauges], float | int | None], scale: float = 1.0) -> Callable[[RunGauges], Values]:
    """Return a function that yields one figure times `scale`, without further labels; nothing if the figure is None."""

    def values(run: RunGauges) -> Values:
        value = read(run)
        if value is not None:
            yield {}, value * scale

    return values


def _read_phases(run: RunGauges) -> Values:
    for phase, value_ns in (run.phases_ns or {}).items():
        yield {"phase": phase}, value_ns * 1e-9


def _read_state(run: RunGauges) -> Values:
    for state in STATES:
        yield {"state": state}, float(state == run.state)


METRICS: tuple[Metric, ...] = (
    Metric("step_seconds", "s", "Mean time of the last 50 steps, over the ranks.", _plain(lambda r: r.step_ns, 1e-9)),
    Metric(
        "phase_seconds", "s", "Mean time of a phase in the last 50 steps, over the ranks.", _read_phases, ("phase",)
    ),
    Metric("data_wait_ratio", "1", "Part of the step spent waiting for data.", _plain(lambda r: r.data_wait_frac)),
    Metric("steps_recorded", "{step}", "Steps of the rank that has most.", _plain(lambda r: r.steps)),
    Metric("ranks", "{rank}", "Ranks that left a folder.", _plain(lambda r: r.ranks)),
    Metric("ranks_read", "{rank}", "Ranks whose figures were read.", _plain(lambda r: r.ranks_read)),
    Metric("world_size", "{rank}", "Ranks that the job says it has.", _plain(lambda r: r.world_size)),
    Metric("slowest_rank", "1", "Number of the rank with most work of its own.", _plain(lambda r: r.slowest_rank)),
    Metric(
        "slowest_rank_slowdown_ratio",
        "1",
        "Own work of the slowest rank, divided by the median of the others.",
        _plain(lambda r: r.slowdown_ratio),
    ),
    Metric(
        "standing_seconds", "s", "How long the job has stood still; 0 while it gets on.", _plain(lambda r: r.standing_s)
    ),
    Metric("state", "1", "1 for the state that the run is in.", _read_state, ("state",)),
    Metric(
        "events_lost", "{event}", "Events that were overwritten before they were read.", _plain(lambda r: r.events_lost)
    ),
    Metric(
        "ranks_losing_steps",
        "{rank}",
        "Ranks with lost steps: more ended than were recorded.",
        _plain(lambda r: r.ranks_losing_steps),
    ),
)


def render_metrics(runs: Iterable[RunGauges]) -> tuple[bytes, str]:
    """Return the metrics of runs as Prometheus text, and its media type. Raises UsageError without prometheus_client."""
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
                family = GaugeMetricFamily(_PREFIX + metric.name, metric.meaning, labels=("run", *metric.labels))
                for run in found:
                    for labels, value in metric.read(run):
                        family.add_metric([run.label, *labels.values()], value)
                yield family

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Reading())
    return generate_latest(registry), CONTENT_TYPE_LATEST
