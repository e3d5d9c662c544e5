"""Steps that all went alike to tables: columns, never a row by itself."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np
import pyarrow as pa

from collector.format.parts import build_table
from collector.format.phases import PHASE_NAMES
from collector.format.stored_files import arrow_schema
from collector.format.words import PIN_QUEUE, WORKER_QUEUE
from collector.ring.clock import Clock
from collector.ring.packing import READY, unpack_queues
from collector.sidecar.steps.steady import Ints, Steady


def list_steps(steady: Steady, example: Mapping[str, Any], index: int, clock: Clock) -> pa.Table:
    """Return rows of `steps`. What the example says holds for all, but for what is measured of each."""
    count = len(steady)
    own = {
        "index": np.arange(index, index + count),
        "step": steady.steps,
        "start_ns": clock.to_run(steady.starts),  # type: ignore[arg-type]
        "duration_ns": steady.ends - steady.starts,
        **{f"{name}_ns": steady.phases[:, place] for place, name in enumerate(PHASE_NAMES)},
        "epoch": steady.epochs,
        "loader": steady.loaders,
        "batch": steady.batches,
        "samples": _build_samples(steady.used, count),
        "gc_ns": steady.collections,
    }
    kinds = {field.name: field.type for field in arrow_schema("steps")}
    rest = {
        name: pa.repeat(pa.scalar(value, pa.string() if pa.types.is_dictionary(kinds[name]) else kinds[name]), count)
        for name, value in example.items()
        if name not in own and value is not None
    }
    return build_table("steps", {**rest, **own})


def list_fetches(steady: Steady, index: int, clock: Clock) -> pa.Table:
    """Return rows of `fetches`, one per step."""
    return build_table(
        "fetches",
        {
            "step": steady.steps,
            "index": np.arange(index, index + len(steady)),
            "loader": steady.loaders,
            "epoch": steady.epochs,
            "batch": steady.batches,
            "start_ns": clock.to_run(steady.starts),  # type: ignore[arg-type]
            "duration_ns": steady.fetches,
            "samples": _build_samples(steady.samples, len(steady)),
        },
    )


def list_queues(steady: Steady, capacities: Mapping[int, int], with_pin_queue: Set[int], clock: Clock) -> pa.Table:
    """Return rows of `queues`: the worker queue of each step, and the pin queue where there is one."""
    words = steady.queues
    assert words is not None
    queues = unpack_queues(words)
    columns: dict[str, Any] = {
        "step": steady.steps,
        "start_ns": clock.to_run(steady.starts),  # type: ignore[arg-type]
        "loader": steady.loaders,
        "batch": steady.batches,
        "capacity": np.array([capacities.get(loader, 0) for loader in steady.loaders.tolist()], np.int64),
        "next_ready": pa.array(queues.state == READY, pa.bool_(), mask=queues.state > READY),
        "out_of_order": queues.out_of_order,
        "outstanding": queues.outstanding,
    }
    worker = build_table(
        "queues", {**columns, "queue": _repeat(WORKER_QUEUE, len(words)), "depth": queues.worker_depth}
    )
    pins = np.isin(steady.loaders, list(with_pin_queue))
    if not pins.any():
        return worker
    pin = build_table("queues", {**columns, "queue": _repeat(PIN_QUEUE, len(words)), "depth": queues.pin_depth})
    both = pa.concat_tables([worker, pin.filter(pa.array(pins))]).unify_dictionaries()
    steps = np.arange(len(words))
    return both.take(np.argsort(np.concatenate((steps, steps[pins])), kind="stable"))


def _build_samples(samples: Ints | None, count: int) -> Any:
    """Return samples; null where they are not known."""
    if samples is None:
        return pa.nulls(count, pa.int64())
    return pa.array(samples, pa.int64(), mask=samples == 0)


def _repeat(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), count)
