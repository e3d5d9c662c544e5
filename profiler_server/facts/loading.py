"""The supply of batches to the steps: the work on batches, the limiting stage, and the loop model for the simulator.
Rules and sentences on loading read these facts.

Times are in ns. A time per step or per batch is a mean, unless it is said to be something else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from collector.estimating.model import LoopModel
from profiler_server.diagnosis.limits.facts import (
    CAPPED_NEED,
    COMPUTED_READ_FRAC,
    COMPUTING_FRAC,
    COPY_BYTES_PER_NS,
    IN_MEMORY_NS,
    INPUT_WAIT_FRAC,
    LATE_FRAC,
    STARVED_WAIT_FRAC,
    STORAGE_YIELD_FRAC,
    UNEVEN_LOAD_FRAC,
    UNEVEN_SPREAD,
)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Readiness:
    """The state of a queue of batches when the training thread requested a batch. Shares are of these requests, unless
    said otherwise.

    `not_ready_frac` is the share of requests whose batch was not ready. A queue that is not empty can still lack the
    next batch in order. `held_up_frac` is the share of requests in which later batches waited for an earlier one.
    `late_wait_frac` is the share of all waiting for data that falls in steps whose batch was not ready; 0 if unknown.
    """

    queue: str
    not_ready_frac: float
    held_up_frac: float
    late_wait_frac: float = 0.0


@dataclass(frozen=True)
class Receiving:
    """The time that the training thread takes to receive one batch from a worker.

    `idle_ns` is the mean time if the worker is idle. `held_ns` is the longest extra time if the worker is making its
    next batch, because the worker's interpreter is then busy."""

    idle_ns: float
    held_ns: float


@dataclass(frozen=True)
class BatchTimes:
    """The work on each batch, in request order; every array has one value per batch.

    `stages_ns` has an array for each stage, and `total_ns` is the sum over the stages. `cpu_ns` is the part of
    `total_ns` on a processor, None if no stage recorded its processor time. `samples` and `bytes` are the mean
    number of samples and the mean size of a batch, 0 if unknown. `stretch` is the duration of the work divided by
    its processor time; it exceeds 1 if the work waited for a processor. `held_ns` is how long each batch occupies
    its worker, None for the whole work. It does not include the waits of sending, which run beside the next batch.
    `receiving` is the time that the training thread takes to receive a batch, None if unknown."""

    stages_ns: Mapping[str, Floats]
    total_ns: Floats
    cpu_ns: Floats | None
    samples: float
    stretch: float = 1.0
    bytes: float = 0.0
    held_ns: Floats | None = None
    receiving: Receiving | None = None

    @property
    def cpu_frac(self) -> float | None:
        if self.cpu_ns is None or not self.total_ns.sum():
            return None
        return min(1.0, float(self.cpu_ns.sum() / self.total_ns.sum()))

    def without_sampling(self, batch_ns: float) -> BatchTimes:
        """Return the same work, with receiving shortened by `batch_ns`, the time of choosing samples.

        Samples are chosen within the request, after the batch was received.
        """
        if self.receiving is None:
            return self
        left_ns = max(self.receiving.idle_ns - batch_ns, 0.0)
        return replace(self, receiving=replace(self.receiving, idle_ns=left_ns))

    def share(self, stage: str) -> float:
        """Return the share of the work on all batches that a stage takes; 0 for an unknown stage."""
        whole = float(self.total_ns.sum())
        return float(self.stages_ns[stage].sum()) / whole if whole and stage in self.stages_ns else 0.0


@dataclass(frozen=True)
class Crowding:
    """Reading speed with `few` workers that read at once (the mean in the third of the batches with the fewest), and
    with `many` (in the third with the most). Each speed is the sum over all workers that read at once."""

    few: float
    many: float
    few_bytes_per_s: float
    many_bytes_per_s: float

    @property
    def yield_frac(self) -> float:
        """The increase of the reading speed divided by the increase of workers: 1 if the storage keeps up, 0 if more
        workers read no more."""
        return (self.many_bytes_per_s / self.few_bytes_per_s - 1.0) / (self.many / self.few - 1.0)


@dataclass(frozen=True)
class Reading:
    """The reading of samples: means per batch, over the inspected batches. A field is None if not recorded, or with too
    few batches.

    `read_ns` is the reading time, `samples`, `bytes` and `files` are what was read, and `open_ns` is the time of
    opening files. `cpu_frac` is the share of the reading time on a processor. `first_ns` and `later_ns` are median
    reading times in the first epoch and in later epochs; `epochs` is the number of the latest epoch. `at_once` is
    whether the dataset reads a batch in one call."""

    read_ns: float
    epochs: int
    cpu_frac: float | None
    samples: float
    bytes: float | None
    files: float | None
    open_ns: float | None
    first_ns: float | None
    later_ns: float | None
    crowding: Crowding | None
    at_once: bool = False


@dataclass(frozen=True)
class SamplerTimes:
    """The mean time per batch (`batch_ns`) in which one sampler, of the class `kind`, chooses the samples. The first
    batch of each epoch is left out. The longest call is left out, too, because a busy machine may have interrupted
    it for very long."""

    kind: str
    batch_ns: float


Cause = Literal["none", "making", "overhead", "receiving", "processor", "epoch_start", "unmarked"]


@dataclass(frozen=True)
class Bottleneck:
    """The stage that limits the step, None if no stage does. `reason` is a sentence on it with figures. `cause` is the
    kind of limit:

    "making": batches are late. "overhead": the DataLoader's own work per batch exceeds that of the stages. "receiving":
    batches are ready, but the step waits to receive them. "processor": batches are ready, but the training thread waits
    for a core. "epoch_start": only the first steps of epochs wait. "unmarked": no stage that the script marks works
    meanwhile. "none": the step hardly waits.

    `made_frac` is the share of the requests whose batch the workers had finished, None if unknown.
    """

    stage: str | None
    reason: str
    cause: Cause = "none"
    made_frac: float | None = None


@dataclass(frozen=True)
class MeasuredLoop:
    """The model of the training loop as it ran, and the accuracy of this model.

    `regular_step_ns` is the measured time of a regular step. `own_ns` is the same without the data wait; times in
    the model may be scaled. `fetches` is the number of batches per step; times in the model are per batch. `check`
    is the simulated step divided by the measured step; the simulator is trusted between 0.9 and 1.1. `assumed` means
    that the share of the work that needs a processor is a guess. `contention_frac` is the share of the processors
    that other programs took while the run had work for these processors."""

    model: LoopModel
    fetches: float
    regular_step_ns: float
    own_ns: float
    check: float
    assumed: bool
    contention_frac: float

    @property
    def trusted(self) -> bool:
        return 0.9 <= self.check <= 1.1


@dataclass(frozen=True)
class LoaderArguments:
    """The arguments of one DataLoader, as recorded (see `Loader` in the manifest). A field is None if it is unknown
    or was not given."""

    id: int
    dataset: str
    style: Literal["map", "iterable"]
    batch_size: int | None = None
    num_workers: int = 0
    prefetch_factor: int | None = None
    pin_memory: bool = False
    persistent_workers: bool = False
    in_order: bool = True
    shuffle: bool | None = None
    length_batches: int | None = None
    start_method: str | None = None
    remade: int = 0
    cpu_frac: float | None = None
    reads_ahead: bool | None = None


@dataclass(frozen=True)
class Choice:
    """A number of workers to use. `reason` is how this number was found, as a clause that can follow a colon."""

    workers: int
    reason: str


@dataclass(frozen=True)
class Choices:
    """Arguments of the DataLoader that the simulation proposes. Each is None if nothing in the run suggests a change.

    `fewer_workers` keep the step as short as now. `prefetch` is the least prefetch factor whose step is within 3 %
    of the best. `spared_ns` is how long a step waits for a processor that the workers hold; less work of the workers
    saves this time."""

    workers: Choice | None = None
    fewer_workers: int | None = None
    prefetch: int | None = None
    spared_ns: float = 0.0


@dataclass(frozen=True)
class Loading:
    """The supply of batches by one DataLoader. `loader` is None for a run without a DataLoader.

    `watched` is the iterable given to `stepscope.watch` instead of a DataLoader, else None. `readiness` has one
    entry per queue, in the order in which a batch passes them. `batches` is None if the work on batches was not
    recorded. `transforms` are names of transforms with their share of all transforms' work. `wait_ns` is the wait
    for batches in a regular step, `mean_wait_ns` in the mean step."""

    loader: LoaderArguments | None
    readiness: tuple[Readiness, ...]
    batches: BatchTimes | None
    bottleneck: Bottleneck
    transforms: tuple[tuple[str, float], ...]
    loop: MeasuredLoop
    wait_ns: float
    mean_wait_ns: float
    watched: LoaderArguments | None = None
    sampler: SamplerTimes | None = None
    reading: Reading | None = None
    choices: Choices = field(default_factory=Choices)

    @property
    def name(self) -> str:
        """A name by which the user knows the loader: its number and data set."""
        if self.watched is not None:
            return self.watched.dataset
        return f"DataLoader {self.loader.id} ({self.loader.dataset})" if self.loader is not None else "the loader"

    @property
    def wait_frac(self) -> float:
        return self.wait_ns / self.loop.regular_step_ns if self.loop.regular_step_ns else 0.0

    @property
    def is_input_bound(self) -> bool:
        return self.wait_frac > INPUT_WAIT_FRAC

    @property
    def is_starved(self) -> bool:
        """Whether the step waits for data because of a known stage or late batches. The name has another meaning
        than the word "starved" for a stage. Such a run must get a suggestion."""
        late = self.bottleneck.stage is not None or self.not_ready_frac > LATE_FRAC
        return self.wait_frac >= STARVED_WAIT_FRAC and late

    @property
    def batch_ns(self) -> float:
        """The mean work on one batch in ns, summed over all stages."""
        jobs = self.loop.model.batches
        if self.batches is not None:
            return float(self.batches.total_ns.mean())
        return sum(job.wall_ns for job in jobs) / len(jobs) if jobs else 0.0

    @property
    def work_frac(self) -> float:
        """The work on all batches of a step, divided by the time of a regular step."""
        return self.batch_ns * self.loop.fetches / self.loop.regular_step_ns if self.loop.regular_step_ns else 0.0

    @property
    def cpu_frac(self) -> float:
        """Share of the work on a batch that needs a processor; all of it if unknown."""
        known = self.batches.cpu_frac if self.batches is not None else None
        return 1.0 if known is None else known

    @property
    def batch_samples(self) -> float:
        """Samples in a batch; 0 if unknown."""
        if self.batches is not None:
            return self.batches.samples
        return float(self.loader.batch_size or 0) if self.loader is not None else 0.0

    @property
    def is_in_memory(self) -> bool:
        """Whether samples are so cheap that they are probably in memory, and most of their cost is fetching them one
        by one."""
        samples = self.batch_samples
        return samples >= 8 and 0 < self.batch_ns / samples < IN_MEMORY_NS

    @property
    def takes_whole_batches(self) -> bool:
        """Whether the data set could take whole batches but does not: samples in memory are fetched one by one where
        one index operation per batch would do."""
        loader, at_once = self.loader, self.reading is not None and self.reading.at_once
        is_single = loader is not None and loader.style == "map" and loader.batch_size is not None and not at_once
        return is_single and self.is_in_memory

    @property
    def is_uneven(self) -> bool:
        """Whether a few slow batches delay later ones, although the workers are fast enough for the median batch."""
        loader, batches = self.loader, self.batches
        if loader is None or batches is None or not loader.num_workers or not loader.in_order:
            return False
        own_ns = self.loop.regular_step_ns - self.wait_ns
        load = self.median_batch_ns * self.loop.fetches / (loader.num_workers * own_ns) if own_ns else 1.0
        return float(batches.total_ns.std() / batches.total_ns.mean()) > UNEVEN_SPREAD and load < UNEVEN_LOAD_FRAC

    @property
    def is_slow_for_few(self) -> bool:
        """Whether only some batches are slow, and other workers could continue while one worker makes a slow batch."""
        return self.is_uneven and self.loader is not None and self.loader.num_workers > 1

    @property
    def median_batch_ns(self) -> float:
        """The median work on a batch, ns; 0 if not recorded."""
        return float(np.median(self.batches.total_ns)) if self.batches is not None else 0.0

    @property
    def is_capped_by_storage(self) -> bool:
        """Whether reading mostly waits, and many workers that read at once get hardly more bytes per second than
        few."""
        reading = self.reading
        if reading is None or reading.crowding is None or reading.cpu_frac is None:
            return False
        return reading.cpu_frac < COMPUTING_FRAC and reading.crowding.yield_frac < STORAGE_YIELD_FRAC

    @property
    def read_need(self) -> float | None:
        """The mean number of cores that a worker uses while it reads, None if unknown.

        If reading is most of the work, the time in which the worker waits for a processor is left out."""
        cpu_frac = self.reading.cpu_frac if self.reading is not None else None
        if cpu_frac is None or self.batches is None or self.batches.share("read") < COMPUTED_READ_FRAC:
            return cpu_frac
        return max(cpu_frac, self.cpu_need)

    @property
    def computes_to_read(self) -> bool:
        """Whether reading uses a processor for more than opening files and moving their bytes, as far as recorded."""
        reading = self.reading
        if reading is None or self.read_need is None or self.read_need <= CAPPED_NEED:
            return False
        moved_ns = (reading.bytes or 0.0) / COPY_BYTES_PER_NS + (reading.open_ns or 0.0)
        return moved_ns < COMPUTED_READ_FRAC * reading.read_ns

    @property
    def cpu_need(self) -> float:
        """The mean number of cores that a worker uses, without the time in which it waits for a processor; 1 if
        unknown."""
        jobs = self.loop.model.batches
        wall = sum(job.wall_ns for job in jobs)
        return sum(job.wall_ns * job.cores for job in jobs) / wall if wall else 1.0

    @property
    def not_ready_frac(self) -> float:
        """Share of requests whose batch was missing from the queue that the training thread reads."""
        if self.readiness:
            return self.readiness[-1].not_ready_frac
        return 1.0 if self.is_input_bound else 0.0
