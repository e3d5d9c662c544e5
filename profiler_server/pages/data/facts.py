"""The facts that both tabs of the Data pipeline page use: steps, queues, stages, the loader that feeds the steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Ints
from collector.format.run import RankRun
from collector.format.schema.manifest import Loader
from collector.format.steps import (
    StepRows,
    StepSelection,
    count_as_steps,
    read_integers,
    select_steps,
    tells_waits,
    train_steps,
)
from collector.format.timeline_rows import keep_workers
from profiler_server.analysis.data import queues
from profiler_server.analysis.data.feeding import read_feeds
from profiler_server.analysis.data.queues import DEVICE_QUEUE, HOST_QUEUE, QueueKey, sum_queues, summarize_readiness
from profiler_server.analysis.data.replicas import read_stages
from profiler_server.analysis.data.stages import select_own, share_steps, sum_stages, summarize_own
from profiler_server.analysis.tables import read_rows
from profiler_server.diagnosis.bottleneck import find_own_bottleneck, read_limit
from profiler_server.diagnosis.readings import (
    Pipeline,
    Reading,
    read_bottleneck,
    read_queues_plainly,
    read_watched,
)
from profiler_server.facts.loading import Bottleneck, Readiness
from profiler_server.facts.pipeline import OwnStage, QueueSummary, StageSummary

_STEP_COLUMNS = (
    "step",
    "kind",
    "start_ns",
    "duration_ns",
    "data_wait_ns",
    "h2d_ns",
    "batch",
    "loader_start_ns",
    "detailed",
    "index",
    "loader",
    "fetches",
    "markers",
)
QUEUE_LABELS: Mapping[str, str] = {HOST_QUEUE: "Worker queue", DEVICE_QUEUE: "Pin queue"}


@dataclass(frozen=True)
class StepWaits:
    """The waits of the training steps, one entry for each step. `selection.kept` marks the steps that means cover.

    If several loaders feed a step (`is_one_of_several`), `data_wait_ns` is the wait for the chosen loader alone.
    """

    steps: Ints
    data_wait_ns: Ints
    h2d_ns: Ints
    duration_ns: Ints
    selection: StepSelection
    is_one_of_several: bool = False
    is_of_others: bool = False
    """Whether the steps take their batches from other loaders only, so that no step is listed."""

    @property
    def wait_frac(self) -> float:
        return self._share(self.data_wait_ns)

    @property
    def h2d_frac(self) -> float:
        return self._share(self.h2d_ns)

    def mean_ns(self, values: Ints) -> float:
        """Return the mean of `values` over the kept steps; 0 if no step is kept."""
        kept = values[self.selection.kept]
        return float(kept.mean()) if len(kept) else 0.0

    def _share(self, values: Ints) -> float:
        whole = self.mean_ns(self.duration_ns)
        return self.mean_ns(values) / whole if whole else 0.0


class PipelineFacts:
    """The facts on the data pipeline of one rank and one loader (None: all). Each fact is read at its first use, which
    may raise as `RankRun.table` does.

    `chosen_rows` are limited to the DataLoader workers in `workers` (None: all). All other facts cover all workers."""

    def __init__(self, rank: RankRun, loader: int | None, workers: frozenset[int] | None = None) -> None:
        self.rank = rank
        self.loader_id = loader
        self.workers = workers

    @property
    def loader(self) -> Loader | None:
        return next((entry for entry in self.rank.manifest.loaders if entry.id == self.loader_id), None)

    @cached_property
    def _rows(self) -> StepRows:
        return count_as_steps(read_rows(self.rank, "steps", _STEP_COLUMNS))

    @property
    def _steps(self) -> pa.Table:
        return self._rows.steps

    @property
    def noun(self) -> str:
        """Return the word for a row of `steps`: step, or batch in a run that only infers."""
        return self._rows.noun

    @cached_property
    def waits(self) -> StepWaits:
        """Return the waits of the steps; empty without training steps, or if the chosen loader feeds no step."""
        train = train_steps(self._steps)
        numbers, wait, h2d, duration = (
            read_integers(train, name) for name in ("step", "data_wait_ns", "h2d_ns", "duration_ns")
        )
        feeds = read_feeds(self.rank, train)
        mine = next((feed for feed in feeds if len(feeds) > 1 and feed.loader == self.loader_id), None)
        if mine is not None:
            wait = mine.wait_ns
        elif self.loader_id is not None and all(feed.loader not in (None, self.loader_id) for feed in feeds):
            chosen = train.slice(0, 0)  # another loader feeds the steps
            numbers, wait, h2d, duration = (numbers[:0] for _ in range(4))
            return StepWaits(numbers, wait, h2d, duration, select_steps(chosen), is_of_others=True)
        return StepWaits(numbers, wait, h2d, duration, select_steps(self._steps), mine is not None)

    @property
    def tells_waits(self) -> bool:
        """Return whether it is known how long the steps wait for data. Some traces do not record this wait."""
        return tells_waits(self.rank.manifest.is_trace, int(self.waits.data_wait_ns.sum()))

    @cached_property
    def samples(self) -> pa.Table:
        """Return the queue samples of the loader and of the user's own queues; empty if no queue was sampled."""
        samples = queues.read_queues(self.rank)
        if self.noun != "step":
            samples = queues.renumber_samples(samples, read_integers(self._steps, "start_ns"))
        if self.loader_id is None:
            return samples
        loader = pc.fill_null(samples["loader"], -1)
        return samples.filter(pc.or_(pc.equal(loader, self.loader_id), pc.equal(loader, -1)))

    @cached_property
    def _all_rows(self) -> pa.Table:
        return read_stages(self.rank, self.loader_id)

    @cached_property
    def stage_rows(self) -> pa.Table:
        return self._all_rows.filter(pc.is_valid(self._all_rows["loader"]))

    @cached_property
    def chosen_rows(self) -> pa.Table:
        """Return the rows of the loader's stages in the chosen workers, and the rows that belong to no worker, such as
        those of the pin thread.
        """
        return self.stage_rows if self.workers is None else keep_workers(self.stage_rows, self.workers)

    @cached_property
    def own_rows(self) -> pa.Table:
        return select_own(self._all_rows)

    @cached_property
    def own_stages(self) -> tuple[OwnStage, ...]:
        return summarize_own(self.own_rows)

    @cached_property
    def own_bottleneck(self) -> Bottleneck | None:
        """Return the stage that limits the user's own pipeline; None if the script names no stage."""
        if not self.own_stages:
            return None
        feeds_steps = self.loader_id is None and len(self.waits.steps)
        return self.bottleneck if feeds_steps else find_own_bottleneck(self.own_stages)

    @cached_property
    def queue_keys(self) -> tuple[QueueKey, ...]:
        """Return the queues in the order in which a batch passes through them."""
        passed = [name for stage in self.own_stages for name in (*stage.inputs, *stage.outputs)]
        places = {name: place for place, name in reversed(list(enumerate(passed)))}
        keys = queues.list_queues(self.samples)
        own = sorted((key for key in keys if key.loader is None), key=lambda key: places.get(key.name, len(passed)))
        return (*(key for key in keys if key.loader is not None), *own)

    @cached_property
    def queues(self) -> Mapping[QueueKey, QueueSummary]:
        found = ((key, sum_queues(queues.of_queue(self.samples, key))) for key in self.queue_keys)
        return {key: rows[0] for key, rows in found}

    @cached_property
    def stages(self) -> Mapping[str, StageSummary]:
        rows = share_steps(sum_stages(self.stage_rows), self.stage_rows, self._steps)
        return {row.name: row for row in rows}

    @cached_property
    def readiness(self) -> tuple[Readiness, ...]:
        return summarize_readiness(self.samples, self.loader_id, train_steps(self._steps))

    @cached_property
    def bottleneck(self) -> Bottleneck:
        """Return the stage that limits the steps, with a reason. It is the same as in the verdict."""
        return read_limit(self.rank, self.loader_id)

    @cached_property
    def readings(self) -> tuple[Reading, ...]:
        host, device = self._find_queue(HOST_QUEUE), self._find_queue(DEVICE_QUEUE)
        pipeline = Pipeline(host, device, self.waits.wait_frac, self.readiness, self.bottleneck)
        limits = [] if self.own_bottleneck is None else [read_bottleneck(self.own_bottleneck)]
        if self.loader is not None and self.loader.watched:
            limits.append(read_watched(self.loader, self.waits.wait_frac, self.noun))
        elif self.loader is not None or (self.queues and self.own_bottleneck is None):
            limits.append(read_bottleneck(self.bottleneck))
        return (*read_queues_plainly(pipeline), *limits)

    def _find_queue(self, name: str) -> QueueSummary | None:
        return next((row for key, row in self.queues.items() if key.name == name and key.loader is not None), None)


def label_queue(key: QueueKey) -> str:
    return QUEUE_LABELS.get(key.name, key.name) if key.loader is not None else key.name
