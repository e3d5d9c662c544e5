"""Build tables from whole columns, for speed: rows of `steps` for similar steps, and rows of `fetches` and `queues`."""

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
    """Return rows of `steps` for similar steps, numbered from `index`. `example` has what was not measured."""
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
        "samples": None if steady.used is None else pa.array(steady.used, pa.int64(), mask=steady.used == 0),
        "gc_ns": steady.collections,
    }
    kinds = {field.name: field.type for field in arrow_schema("steps")}
    rest = {
        name: pa.repeat(pa.scalar(value, pa.string() if pa.types.is_dictionary(kinds[name]) else kinds[name]), count)
        for name, value in example.items()
        if name not in own and value is not None
    }
    return build_table("steps", {**rest, **own})


def list_fetches(columns: Mapping[str, Ints], clock: Clock) -> pa.Table:
    """Return rows of `fetches` from columns. `start_ns` are perf_counter_ns readings; 0 in `samples` means unknown."""
    samples = columns["samples"]
    own = {"start_ns": clock.to_run(columns["start_ns"]), "samples": pa.array(samples, pa.int64(), mask=samples == 0)}  # type: ignore[arg-type]
    return build_table("fetches", {**columns, **own})


def list_queues(
    columns: Mapping[str, Ints], words: Ints, capacities: Mapping[int, int], with_pin_queue: Set[int], clock: Clock
) -> pa.Table:
    """Return rows of `queues`: for each request a row of the worker queue, and a row of the pin queue if the loader has
    one.

    `words` are the packed depths, one word per request; `capacities` maps a loader to the capacity of its queues. A
    batch below 0 means that the request has not brought a batch yet.
    """
    queues = unpack_queues(words)
    batches, loaders = columns["batch"], columns["loader"]
    common: dict[str, Any] = {
        **columns,
        "start_ns": clock.to_run(columns["start_ns"]),  # type: ignore[arg-type]
        "batch": pa.array(batches, pa.int64(), mask=batches < 0),
        "capacity": np.array([capacities.get(loader, 0) for loader in loaders.tolist()], np.int64),
        "next_ready": pa.array(queues.state == READY, pa.bool_(), mask=queues.state > READY),
        "out_of_order": queues.out_of_order,
        "outstanding": queues.outstanding,
    }
    worker = build_table("queues", {**common, "queue": _repeat(WORKER_QUEUE, len(words)), "depth": queues.worker_depth})
    pins = np.isin(loaders, list(with_pin_queue))
    if not pins.any():
        return worker
    pin = build_table("queues", {**common, "queue": _repeat(PIN_QUEUE, len(words)), "depth": queues.pin_depth})
    both = pa.concat_tables([worker, pin.filter(pa.array(pins))]).unify_dictionaries()
    places = np.arange(len(words))
    return both.take(np.argsort(np.concatenate((places, places[pins])), kind="stable"))


def _repeat(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), count)
