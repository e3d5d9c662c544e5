"""The activity of the stages and queues of a data pipeline, a DataLoader's or the user's own."""

from __future__ import annotations

from dataclasses import dataclass

WORKER_STAGES = ("read", "transform", "collate", "send")


@dataclass(frozen=True)
class QueueSummary:
    """`usage_frac` is mean depth / capacity, `empty_frac` the share of samples at depth 0: no batch was ready, neither in the
    queue nor received ahead of its turn."""

    name: str
    capacity: int
    mean_depth: float
    usage_frac: float
    empty_frac: float
    samples: int


@dataclass(frozen=True)
class StageSummary:
    """Shares are of the replicas' wall time, or of the steps for stages in the training process. `mean_ns` is work per
    batch. `loader` is None for a stage of the user's."""

    name: str
    replicas: int
    count: int
    mean_ns: float
    busy_frac: float | None
    input_wait_frac: float | None
    output_wait_frac: float | None
    loader: int | None = None


@dataclass(frozen=True)
class OwnStage:
    """A stage of the user's, with the queues that the stage was seen to wait for: `inputs` to read, `outputs` to write.

    `awaited_frac` is the share of the steps' wait for data during which the stage works.
    """

    summary: StageSummary
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    awaited_frac: float = 0.0

    @property
    def name(self) -> str:
        return self.summary.name


@dataclass(frozen=True)
class Making:
    """How far the workers were behind the step.

    `made_frac` is the share of the requests whose batch was already finished. `unmade_wait_frac` is the share of all
    waiting before the batch was finished; the rest was receiving.
    """

    made_frac: float
    unmade_wait_frac: float


@dataclass(frozen=True)
class OwnMaking:
    """Batches that the training process makes itself: the mean wait for a batch, and the timed stages in that wait."""

    wait_ns: float
    timed_ns: float


@dataclass(frozen=True)
class WorkerLoad:
    """The share of time that the workers work, and the share of the work that needs a processor (None: not recorded).

    Waiting for a processor that others hold is not work. `queued_frac` is the share of its time that the training
    thread waits for a processor. `making`, and `own` without workers, are None if requests and work cannot be compared.
    """

    busy_frac: float
    cpu_frac: float | None
    queued_frac: float = 0.0
    making: Making | None = None
    own: OwnMaking | None = None
