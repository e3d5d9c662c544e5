"""Rows as pages and `report --json` show them: operators, kernels, queues, stages of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OperatorRow:
    name: str
    type: str
    count: int
    total_ns: int
    self_ns: int
    device_total_ns: int
    device_self_ns: int


@dataclass(frozen=True)
class KernelRow:
    name: str
    count: int
    total_ns: int
    mean_ns: float
    min_ns: int
    max_ns: int


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
