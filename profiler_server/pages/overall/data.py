"""The data-pipeline card: the queues and stages of the loader that feeds the steps, and which of them limits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.run import RankRun
from profiler_server.analysis.data.queues import sum_queues
from profiler_server.analysis.data.stages import select_own, share_steps, sum_stages, summarize_own
from profiler_server.diagnosis.bottleneck import find_own_bottleneck
from profiler_server.diagnosis.limiting import read_limit
from profiler_server.diagnosis.readings import read_watched
from profiler_server.facts.loading import Bottleneck
from profiler_server.facts.pipeline import QueueSummary, StageSummary
from profiler_server.format import format_count, format_duration, format_share
from profiler_server.page import Notice, explain_absence

DATA_REMEDY = 'Profiler("runs/my-run", data_pipeline=True)'


@dataclass(frozen=True)
class QueueLine:
    """One queue: `key` is its name in an address, `usage_frac` is for a bar."""

    key: str
    name: str
    depth: str
    usage: str
    usage_frac: float
    empty: str


@dataclass(frozen=True)
class StageLine:
    """One stage: its work per batch, and how busy its replicas were."""

    name: str
    replicas: str
    work: str
    busy: str
    busy_frac: float
    limiting: bool


@dataclass(frozen=True)
class DataCard:
    sentence: str
    queues: tuple[QueueLine, ...]
    stages: tuple[StageLine, ...]


def read_data_card(
    rank: RankRun, loader: int | None, wait_frac: float | None, steps: pa.Table | None = None, noun: str = "step"
) -> DataCard | Notice:
    """Build the card of one loader (all of them for None), or say why there is none. Raises as `RankRun.table` does.

    `wait_frac` is the share of the step that waits for data, None where there are no steps to tell; `steps` are its rows.
    """
    watched = next((entry for entry in rank.manifest.loaders if entry.id == loader and entry.watched), None)
    if watched is not None and wait_frac is not None:
        reading = read_watched(watched, wait_frac, noun)
        return DataCard(f"{reading.title}. {reading.text}", (), ())
    absences = {name: explain_absence(rank, name, "No data pipeline", DATA_REMEDY) for name in ("stages", "queues")}
    failed = next((notice for notice in absences.values() if notice and notice.state == "failed"), None)
    if failed or all(absences.values()):
        return failed or absences["queues"] or Notice("empty", "No data pipeline", "No DataLoader was used.")
    rows = None if absences["stages"] else _of_loader(rank.table("stages"), loader)
    stages = () if rows is None else sum_stages(rows)
    if rows is not None and steps is not None:
        stages = share_steps(stages, rows, steps)
    samples = None if absences["queues"] else _of_loader(rank.table("queues"), loader)
    limit = Bottleneck(None, "Without steps no stage can be said to limit them.")
    own = () if absences["stages"] else summarize_own(select_own(rank.table("stages")))
    if own and loader is None:
        limit = find_own_bottleneck(own)
        stages = tuple(stage.summary for stage in own)
    elif wait_frac is not None:
        limit = read_limit(rank, loader)
    return _build_card(sum_queues(samples) if samples is not None else (), stages, limit)


def _of_loader(rows: pa.Table, loader: int | None) -> pa.Table:
    """Return the rows of one loader, and those of the user's own stages and queues."""
    return rows if loader is None else rows.filter(pc.fill_null(pc.equal(rows["loader"], loader), True))


def _build_card(queues: Sequence[QueueSummary], stages: Sequence[StageSummary], limit: Bottleneck) -> DataCard:
    """Describe the queues and the stages, with the stage marked that limits the step, if one does."""
    return DataCard(
        limit.reason,
        tuple(
            QueueLine(
                queue.name.partition(" (loader ")[0][:200],
                queue.name.replace("_", " "),
                f"{queue.mean_depth:.1f} of {format_count(queue.capacity)}",
                format_share(queue.usage_frac),
                queue.usage_frac,
                format_share(queue.empty_frac),
            )
            for queue in queues
        ),
        tuple(
            StageLine(
                stage.name,
                f"× {stage.replicas}",
                format_duration(stage.mean_ns),
                format_share(stage.busy_frac),
                stage.busy_frac or 0.0,
                limiting=stage.name == limit.stage,
            )
            for stage in stages
        ),
    )
