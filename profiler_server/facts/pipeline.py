"""The activity of the stages and queues of a data pipeline, which rules and the Data page read. The pipeline is a
DataLoader's or the user's own."""

from __future__ import annotations

from dataclasses import dataclass

WORKER_STAGES = ("read", "transform", "collate", "send")


@dataclass(frozen=True)
class QueueSummary:
    """The use of a queue of batches over all `samples` of its depth. `mean_depth` is the mean number of batches in the
    queue; `usage_frac` is the same divided by `capacity`.

    `empty_frac` is the share of samples in which no batch was ready: neither in the queue nor received ahead of its
    turn."""

    name: str
    capacity: int
    mean_depth: float
    usage_frac: float
    empty_frac: float
    samples: int


@dataclass(frozen=True)
class StageSummary:
    """The work of one stage of a data pipeline. `count` is the number of batches, `mean_ns` the work per batch.
    `loader` is the number of the DataLoader, None for a stage of the user.

    `busy_frac`, `input_wait_frac` and `output_wait_frac` are shares of the wall time of the stage's workers or
    threads, whose number is `replicas`. If the training process runs the stage, they are shares of the steps. A
    share is None if this time was never recorded."""

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
    """A stage of the user's own pipeline. `inputs` are the names of the queues from which it waits to read, `outputs`
    the names of those to which it waits to write.

    `awaited_frac` is the share of the steps' wait for data during which this stage works."""

    summary: StageSummary
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    awaited_frac: float = 0.0

    @property
    def name(self) -> str:
        return self.summary.name


@dataclass(frozen=True)
class Making:
    """How often and how long the steps waited for batches that the workers had not finished.

    `made_frac` is the share of the requests whose batch was already finished. `unmade_wait_frac` is the share of all
    waiting for batches that lies before the worker finished the batch. In the rest of the waiting time the batch was
    received."""

    made_frac: float
    unmade_wait_frac: float


@dataclass(frozen=True)
class OwnMaking:
    """Batches that the training process makes itself. `wait_ns` is the mean wait for a batch, `timed_ns` the mean
    time per batch of the recorded stages in this wait."""

    wait_ns: float
    timed_ns: float


@dataclass(frozen=True)
class WorkerLoad:
    """The share of time that the workers work, and the share of the work that needs a processor (None if not recorded).

    Waiting for a processor that other threads hold is not work. `queued_frac` is the share of the training thread's
    time in which it waits for a processor. `making` compares the requests with the work of the workers, `own` with the
    work of a loader without workers. Each is None if they cannot be compared.
    """

    busy_frac: float
    cpu_frac: float | None
    queued_frac: float = 0.0
    making: Making | None = None
    own: OwnMaking | None = None
