"""What the stages and queues of a data pipeline did: of a DataLoader, and of the user's own."""

from __future__ import annotations

from dataclasses import dataclass

WORKER_STAGES = ("read", "transform", "collate", "send")


@dataclass(frozen=True)
class QueueSummary:
    """`usage_frac` is mean depth / capacity, `empty_frac` the share of samples at depth 0."""

    name: str
    capacity: int
    mean_depth: float
    usage_frac: float
    empty_frac: float
    samples: int


@dataclass(frozen=True)
class StageSummary:
    """Shares are of the replicas' wall time, or of the steps for what the training process runs; `mean_ns` is work per batch. `loader` is None for a stage of the user's."""

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
    """One stage of the user's: the queues that it takes from and puts into, as far as it waited for them."""

    summary: StageSummary
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.summary.name


@dataclass(frozen=True)
class Making:
    """How far the workers were behind the step.

    `made_frac` is the share of the requests whose batch was finished before it was asked for, `unmade_wait_frac` the
    share of all waiting that passed before the batch was finished; the rest was spent on receiving it.
    """

    made_frac: float
    unmade_wait_frac: float


@dataclass(frozen=True)
class OwnMaking:
    """Batches that the training process makes itself: the mean wait for one, and the part of it that stages were timed."""

    wait_ns: float
    timed_ns: float


@dataclass(frozen=True)
class WorkerLoad:
    """How much of their time the workers work, and how much of that they need a processor (None: not recorded).

    Waiting for a processor that others hold is not counted as work. `queued_frac` is the share of its time that the
    training thread waits for a processor. `making` and, without workers, `own` are None where fetches and work cannot be
    compared.
    """

    busy_frac: float
    cpu_frac: float | None
    queued_frac: float = 0.0
    making: Making | None = None
    own: OwnMaking | None = None
