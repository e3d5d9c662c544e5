"""Propose the arguments of a DataLoader from a short measurement, with every input and formula shown.

Batches are made in this process, one at a time. The measured work is reading (the dataset's `__getitem__` with
transforms) and collating, each split into processor time and waiting time. Parallel workers are simulated from these
times. Not included: pickling, pinning, caches that warm up, the copy to the device. Waits for a processor are left out
of the times, so a busy host does not look like work that waits.

torch is used only if the process has imported it already.
"""

from __future__ import annotations

import contextlib
import html
import itertools
import math
import operator
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import psutil

from collector.environment import count_usable_cores
from collector.estimating.model import Job, LoopModel
from collector.estimating.simulation import MOST_WORKERS, MOST_WORKERS_PER_CORE, bound_workers, find_workers, simulate
from collector.format.schema.errors import OptionError, UsageError
from collector.format.schema.wording import format_percent

MAX_MEMORY_UTIL = 0.7
MOST_PREFETCH = 16
NEAR = 1.03
"""A result within 3 % of the best is considered as good as the best."""
BATCH_SIZE = 32
"""The number of samples in a batch if it is unknown."""
_BATCHES = 8
_LONGEST_S = 10.0
_DEPTH = 4
BUSY_FRAC = 0.1
"""The share of the time of batches in which they wait for a processor, from which the host counts as busy."""


@dataclass(frozen=True)
class Measured:
    """The measured batches, each as the job of a worker, without waits for a processor. `waited_frac` is the share of
    these waits in the time of all batches, `batch_bytes` the size of the largest batch."""

    jobs: tuple[Job, ...]
    waited_frac: float
    batch_bytes: int


@dataclass(frozen=True)
class Inputs:
    """The inputs of an estimate, measured unless the user gives them. `step_ns` is the step without data wait; `cores`
    and `free_bytes` are what the process may use. `max_memory_util` is the share of `free_bytes` that batches made
    ahead may take. `batch_ns` is the mean wall time of a batch, `batch_cpu_frac` the share of it on a processor,
    `batch_bytes` the size of the largest batch."""

    step_ns: int
    cores: float
    free_bytes: int
    max_memory_util: float
    batch_ns: int
    batch_cpu_frac: float
    batch_bytes: int


@dataclass(frozen=True)
class Estimate:
    """The proposal and its derivation, shown by `print()`. `predicted_step_ns` includes the remaining data wait.
    `now_step_ns` is the step with the settings of the given loader, None for a dataset.
    """

    num_workers: int
    prefetch_factor: int
    batch_size: int
    batch_size_range: tuple[int, int]
    predicted_step_ns: int
    predicted_wait_ns: int
    now_step_ns: int | None
    inputs: Inputs
    overridden: tuple[str, ...]
    formulas: tuple[str, ...]

    def print(self) -> None:
        """Print the inputs, the formulas and the proposal."""
        print(self, end="")

    def __str__(self) -> str:
        lines = ["Measured:" if not self.overridden else f"Measured, or given ({', '.join(self.overridden)}):"]
        lines += [
            f"  {entry.name} = {_format_input(entry.name, getattr(self.inputs, entry.name))}"
            for entry in fields(Inputs)
        ]
        lines += ["Formulas:", *(f"  {text}" for text in self.formulas)]
        call = f"DataLoader(…, batch_size={self.batch_size}, num_workers={self.num_workers}"
        if self.num_workers:
            call += f", prefetch_factor={self.prefetch_factor}"
        low, high = self.batch_size_range
        lines += ["Proposal:", f"  {call})"]
        lines.append(
            f"  step {_format('_ns', self.predicted_step_ns)}, of it {_format('_ns', self.predicted_wait_ns)} waiting"
        )
        if self.now_step_ns is not None:
            lines.append(f"  as the loader is now: step {_format('_ns', self.now_step_ns)}")
        lines.append(f"  batch_size {low} to {high} would fit; it changes the training, so it stays as it is")
        return "\n".join(lines) + "\n"

    def __repr__(self) -> str:
        step = _format("_ns", self.predicted_step_ns)
        arguments = f"num_workers={self.num_workers}, prefetch_factor={self.prefetch_factor}"
        return f"Estimate({arguments}, batch_size={self.batch_size}, predicted step {step})"

    def _repr_html_(self) -> str:
        return f"<code>{html.escape(repr(self))}</code>"


def estimate(source: Any, *, batches: int = _BATCHES, quiet: bool = False, **given: Any) -> Estimate:
    """Propose workers, prefetch factor and a range of batch sizes for a DataLoader or a dataset; print the reasons.

    `batches` batches are made, for 10 s at most. Every measured or computed value can be given instead: `step_ns` (step
    time without data wait; by default 0, which asks for the fastest loader), `batch_size`, `num_workers`,
    `prefetch_factor`, `cores`, `free_bytes`, `max_memory_util` (default 0.7), `batch_ns`, `batch_cpu_frac`,
    `batch_bytes`. OptionError for any other name; UsageError for a source of another kind, and if no batch can be made.

    >>> stepscope.estimate(loader, step_ns=40_000_000).num_workers
    6
    """
    manual = _check(given)
    _check_source(source)
    size = int(manual.get("batch_size") or getattr(source, "batch_size", None) or BATCH_SIZE)
    needed = ("batch_ns", "batch_cpu_frac", "batch_bytes")
    measured = None if all(name in manual for name in needed) else measure_batches(source, batches, size)
    inputs = _gather(manual, measured)
    jobs = _list_jobs(inputs, measured, "batch_ns" in manual or "batch_cpu_frac" in manual)
    model = LoopModel(jobs, (Job(max(inputs.step_ns, 1), 1.0),), 1, cores=inputs.cores)
    most = bound_workers(inputs.cores, inputs.batch_cpu_frac)
    workers = manual["num_workers"] if "num_workers" in manual else _choose_workers(model, most)
    prefetch = manual["prefetch_factor"] if "prefetch_factor" in manual else _choose_prefetch(model, workers, inputs)
    found = simulate(LoopModel(jobs, model.steps, workers, prefetch, cores=inputs.cores))
    proposal = Estimate(
        num_workers=workers,
        prefetch_factor=prefetch,
        batch_size=size,
        batch_size_range=_range_batch_size(size, workers * prefetch or 1, inputs),
        predicted_step_ns=round(found.step_ns),
        predicted_wait_ns=round(found.wait_ns),
        now_step_ns=_simulate_now(source, model),
        inputs=inputs,
        overridden=tuple(sorted(manual)),
        formulas=_explain(inputs, workers, prefetch, measured.waited_frac if measured else 0.0),
    )
    if not quiet:
        proposal.print()
    return proposal


def _check_source(source: Any) -> None:
    is_text = isinstance(source, (str, bytes, os.PathLike))
    if is_text or not any(hasattr(source, name) for name in ("dataset", "__getitem__", "__iter__")):
        raise UsageError(
            f"estimate() takes a DataLoader or a dataset, not {source!r:.100}; what a recorded run could gain is said by "
            "stepscope.open_run(path).suggestions()"
        )


def measure_batches(source: Any, batches: int, batch_size: int) -> Measured:
    """Make up to `batches` batches of a DataLoader or a dataset in this process, and return their costs. A further
    batch is made first, and counts only if it is the only one. UsageError if the source is empty."""
    dataset, collate = getattr(source, "dataset", source), _find_collate(source)
    fetch = _by_index(source, dataset, batch_size) if _has_index(dataset) else _in_turn(dataset, batch_size)
    times: list[tuple[int, ...]] = []
    size, until = 0, time.monotonic() + _LONGEST_S
    while len(times) <= max(batches, 1) and time.monotonic() <= until:
        before = _read_clocks()
        if not (samples := next(fetch, None)):
            break
        batch = collate(samples)
        times.append(tuple(map(operator.sub, _read_clocks(), before)))
        size = max(size, count_bytes(batch))
    if not times:
        raise UsageError(f"estimate() got no sample from {type(source).__name__}: it is empty")
    # The first batch also pays for what happens once: imports, opening files.
    kept = times[1:] or times
    jobs = ((max(wall - waited, cpu), cpu) for wall, cpu, waited in kept)
    waited_frac = sum(waited for *_, waited in kept) / max(sum(wall for wall, *_ in kept), 1)
    return Measured(tuple(Job(wall, min(cpu / wall, 1.0)) for wall, cpu in jobs if wall), waited_frac, size)


def _read_clocks() -> tuple[int, int, int]:
    """Return the wall clock, the processor time of this thread, and the time that it has waited for a processor, in ns.
    The last is 0 where the system does not count it."""
    waited_ns = 0
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/thread-self/schedstat", "rb") as file:
        waited_ns = int(file.read().split()[1])
    return time.perf_counter_ns(), time.thread_time_ns(), waited_ns


def _has_index(dataset: Any) -> bool:
    data = sys.modules.get("torch.utils.data")
    if data is not None and isinstance(dataset, data.IterableDataset):
        return False  # torch gives every dataset a __getitem__, one that raises here
    return hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")


def _by_index(source: Any, dataset: Any, batch_size: int) -> Iterator[list[Any]]:
    sampler = getattr(source, "batch_sampler", None)
    size = len(dataset) if sampler is None else 0
    for chosen in sampler or (range(at, min(at + batch_size, size)) for at in range(0, size, batch_size)):
        yield [dataset[index] for index in chosen]


def _in_turn(dataset: Any, batch_size: int) -> Iterator[list[Any]]:
    samples = iter(dataset)
    while batch := list(itertools.islice(samples, batch_size)):
        yield batch


def _find_collate(source: Any) -> Callable[[list[Any]], Any]:
    collate = getattr(source, "collate_fn", None)
    data = sys.modules.get("torch.utils.data")
    if collate is None and data is not None:
        collate = data.default_collate
    return collate if callable(collate) else list


def count_bytes(data: Any, depth: int = _DEPTH) -> int:
    """Return the bytes of the arrays, tensors, texts and other objects in a batch, without the containers around them.
    Containers are searched `depth` levels deep."""
    if hasattr(data, "nbytes"):
        return int(data.nbytes)
    if isinstance(data, (bytes, bytearray, str)):
        return len(data)
    if depth == 0:
        return 0
    if isinstance(data, Mapping):
        return sum(count_bytes(value, depth - 1) for value in data.values())
    if isinstance(data, Sequence):
        return sum(count_bytes(value, depth - 1) for value in data)
    return sys.getsizeof(data)


_NAMES = {
    *("step_ns", "batch_size", "num_workers", "prefetch_factor", "cores", "free_bytes"),
    *("max_memory_util", "batch_ns", "batch_cpu_frac", "batch_bytes"),
}


def _check(given: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(given) - _NAMES)
    if unknown:
        raise OptionError(f"estimate() has no option {unknown[0]!r}; it has: {', '.join(sorted(_NAMES))}")
    for name, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0):
            raise OptionError(f"estimate(): {name} takes a number from 0 on, not {value!r}")
    return {name: value for name, value in given.items() if value is not None}


def _gather(manual: Mapping[str, Any], measured: Measured | None) -> Inputs:
    jobs = measured.jobs if measured else ()
    wall = sum(job.wall_ns for job in jobs)
    found = {
        "step_ns": 0,
        "cores": count_usable_cores(),
        "free_bytes": int(psutil.virtual_memory().available),
        "max_memory_util": MAX_MEMORY_UTIL,
        "batch_ns": round(wall / len(jobs)) if jobs else 0,
        "batch_cpu_frac": sum(job.wall_ns * job.cores for job in jobs) / wall if wall else 1.0,
        "batch_bytes": measured.batch_bytes if measured else 0,
    }
    return Inputs(**{name: manual.get(name, value) for name, value in found.items()})


def _list_jobs(inputs: Inputs, measured: Measured | None, is_given: bool) -> tuple[Job, ...]:
    if measured is None or is_given or not measured.jobs:
        return (Job(max(inputs.batch_ns, 1), min(inputs.batch_cpu_frac, 1.0)),)
    return measured.jobs


def _choose_workers(model: LoopModel, most: int) -> int:
    """Return the fewest workers, up to `most`, whose simulated step is near the shortest; 0 if the step of a loader
    without workers is at most 3 % longer than theirs."""
    workers = find_workers(model, most)
    return 0 if _simulate_loader(model, 0) <= NEAR * _simulate_loader(model, workers) else workers


def _simulate_loader(model: LoopModel, workers: int, prefetch: int = 2) -> float:
    return simulate(LoopModel(model.batches, model.steps, workers, prefetch, cores=model.cores)).step_ns


def _choose_prefetch(model: LoopModel, workers: int, inputs: Inputs) -> int:
    """Return the least prefetch factor whose simulated step is nearly as short as the shortest that memory allows.

    The factor is at least 2 if memory allows 2; it is 2 without workers.
    """
    if workers == 0:
        return 2
    room = inputs.free_bytes * inputs.max_memory_util
    most = MOST_PREFETCH if not inputs.batch_bytes else int(room / (workers * inputs.batch_bytes))
    most = max(1, min(most, MOST_PREFETCH))

    steps_ns = {prefetch: _simulate_loader(model, workers, prefetch) for prefetch in range(1, most + 1)}
    enough = next(prefetch for prefetch, own in steps_ns.items() if own <= NEAR * min(steps_ns.values()))
    return max(enough, min(2, most))


def _range_batch_size(batch_size: int, ahead: int, inputs: Inputs) -> tuple[int, int]:
    """Return the smallest and the largest batch size to try: a quarter and four times `batch_size`.

    The largest is limited by the memory for `ahead` batches.
    """
    low = max(1, batch_size // 4)
    item_bytes = inputs.batch_bytes / max(batch_size, 1)
    room = inputs.free_bytes * inputs.max_memory_util
    most = math.floor(room / (item_bytes * ahead)) if item_bytes else 4 * batch_size
    return low, max(low, min(4 * batch_size, most))


def _simulate_now(source: Any, model: LoopModel) -> int | None:
    workers = getattr(source, "num_workers", None)
    if workers is None:
        return None
    return round(_simulate_loader(model, workers, getattr(source, "prefetch_factor", None) or 2))


def _explain(inputs: Inputs, workers: int, prefetch: int, waited_frac: float) -> tuple[str, ...]:
    most = bound_workers(inputs.cores, inputs.batch_cpu_frac)
    ahead = _format("_bytes", workers * prefetch * inputs.batch_bytes)
    room = _format("_bytes", int(inputs.free_bytes * inputs.max_memory_util))
    busy = (
        f"  the host was busy: batches waited {format_percent(waited_frac)} of the time for a processor; that is left out, "
        "so the proposal is for a host where the cores are free",
    )
    return (
        "batch_ns = mean of read (dataset and transforms) + collate, made in this process",
        *(busy if waited_frac >= BUSY_FRAC else ()),
        "batch_cpu_frac = processor time / wall time of a batch; the rest waits and needs no core",
        "num_workers = the fewest whose simulated step is within 3 % of the best up to "
        f"{most}, sharing the cores; 0 if that is as good",
        f"  {most} = what the cores can feed (cores / batch_cpu_frac), at most {MOST_WORKERS} or "
        f"{MOST_WORKERS_PER_CORE} per core",
        "prefetch_factor = the least whose simulated step is within 3 % of the best, from 2 on, while "
        "prefetch_factor × num_workers × batch_bytes <= max_memory_util × free_bytes",
        f"  here {prefetch} × {workers} × {_format('_bytes', inputs.batch_bytes)} = {ahead}, of {room}",
    )


def _format_input(name: str, value: float) -> str:
    """Return a value in the unit of its name, and behind it in one that is easy to read."""
    unit = name.rpartition("_")[2]
    return f"{value:,} {unit} ({_format(name, value)})" if unit in ("ns", "bytes") else _format(name, value)


def _format(name: str, value: float) -> str:
    if name.endswith("_ns"):
        return f"{value / 1e6:,.3f} ms"
    if name.endswith("_bytes"):
        return f"{value / 2**20:,.1f} MiB" if value >= 1 << 20 else f"{value / 2**10:,.1f} KiB"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
