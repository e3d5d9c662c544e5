"""What is known of how the steps are fed by one DataLoader. Times are ns; `*_ns` per step are means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.format.schema.manifest import Loader
from profiler_server.analysis.data.batches import BatchTimes
from profiler_server.analysis.data.loop import MeasuredLoop
from profiler_server.analysis.data.pipeline import Readiness
from profiler_server.analysis.data.reading import Reading
from profiler_server.analysis.data.sampler import SamplerTimes
from profiler_server.diagnosis.bottleneck import Bottleneck
from profiler_server.diagnosis.limits import (
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


@dataclass(frozen=True)
class Loading:
    """How the steps are fed by one DataLoader; `loader` is None for a run without any. `watched` is the iterable that
    the script gave to `collector.watch` in its place.

    `wait_ns` is the wait for its batches in a regular step, `mean_wait_ns` in the mean step. `batches` is None where
    its work was not recorded.
    """

    loader: Loader | None
    readiness: tuple[Readiness, ...]
    batches: BatchTimes | None
    bottleneck: Bottleneck
    transforms: tuple[tuple[str, float], ...]
    loop: MeasuredLoop
    wait_ns: float
    mean_wait_ns: float
    watched: Loader | None = None
    sampler: SamplerTimes | None = None
    reading: Reading | None = None

    @property
    def name(self) -> str:
        """The loader as the user may know it: its number and its dataset."""
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
        """Say whether the step waits for data and it is known for what, or batches are late: silence is no answer."""
        late = self.bottleneck.stage is not None or self.not_ready_frac > LATE_FRAC
        return self.wait_frac >= STARVED_WAIT_FRAC and late

    @property
    def batch_ns(self) -> float:
        """Work on one batch, all stages."""
        jobs = self.loop.model.batches
        if self.batches is not None:
            return float(self.batches.total_ns.mean())
        return sum(job.wall_ns for job in jobs) / len(jobs) if jobs else 0.0

    @property
    def cpu_frac(self) -> float:
        """Part of the work on a batch that needs a processor; all of it where that is not known."""
        known = self.batches.cpu_frac if self.batches is not None else None
        return 1.0 if known is None else known

    @property
    def batch_samples(self) -> float:
        """Samples in a batch, 0 where that is not known."""
        if self.batches is not None:
            return self.batches.samples
        return float(self.loader.batch_size or 0) if self.loader is not None else 0.0

    @property
    def is_in_memory(self) -> bool:
        """Say whether samples are so cheap to make that fetching them one by one is most of the cost."""
        samples = self.batch_samples
        return samples >= 8 and 0 < self.batch_ns / samples < IN_MEMORY_NS

    @property
    def takes_whole_batches(self) -> bool:
        """Say whether samples in memory can be fetched by one index operation per batch."""
        loader = self.loader
        return loader is not None and loader.style == "map" and loader.batch_size is not None and self.is_in_memory

    @property
    def is_uneven(self) -> bool:
        """Say whether a few slow batches hold up, in order, those of workers that are fast enough for the median one."""
        loader, batches = self.loader, self.batches
        if loader is None or batches is None or not loader.num_workers or not loader.in_order:
            return False
        own_ns = self.loop.regular_step_ns - self.wait_ns
        load = self.median_batch_ns * self.loop.fetches / (loader.num_workers * own_ns) if own_ns else 1.0
        return float(batches.total_ns.std() / batches.total_ns.mean()) > UNEVEN_SPREAD and load < UNEVEN_LOAD_FRAC

    @property
    def is_slow_for_few(self) -> bool:
        """Say whether other workers could go on while one of them makes a slow batch: the work is not slow as such."""
        return self.is_uneven and self.loader is not None and self.loader.num_workers > 1

    @property
    def median_batch_ns(self) -> float:
        """The median work on a batch, 0 where it was not recorded."""
        return float(np.median(self.batches.total_ns)) if self.batches is not None else 0.0

    @property
    def is_capped_by_storage(self) -> bool:
        """Say whether workers that read at once, and wait, get hardly more bytes together than fewer of them."""
        reading = self.reading
        if reading is None or reading.crowding is None or reading.cpu_frac is None:
            return False
        return reading.cpu_frac < COMPUTING_FRAC and reading.crowding.yield_frac < STORAGE_YIELD_FRAC

    @property
    def read_need(self) -> float | None:
        """Cores that reading keeps busy; where it is most of the work, waiting for a processor is left out."""
        cpu_frac = self.reading.cpu_frac if self.reading is not None else None
        if cpu_frac is None or self.batches is None or self.batches.share("read") < COMPUTED_READ_FRAC:
            return cpu_frac
        return max(cpu_frac, self.cpu_need)

    @property
    def computes_to_read(self) -> bool:
        """Say whether reading keeps a processor busy with something else than opening files and moving their bytes."""
        reading = self.reading
        if reading is None or reading.bytes is None or self.read_need is None or self.read_need <= CAPPED_NEED:
            return False
        moved_ns = reading.bytes / COPY_BYTES_PER_NS + (reading.open_ns or 0.0)
        return moved_ns < COMPUTED_READ_FRAC * reading.read_ns

    @property
    def cpu_need(self) -> float:
        """Cores that one worker keeps busy, waiting for a processor left out; 1 where that is not known."""
        jobs = self.loop.model.batches
        wall = sum(job.wall_ns for job in jobs)
        return sum(job.wall_ns * job.cores for job in jobs) / wall if wall else 1.0

    @property
    def not_ready_frac(self) -> float:
        """How often the next batch was missing from the queue that the training thread takes from."""
        if self.readiness:
            return self.readiness[-1].not_ready_frac
        return 1.0 if self.is_input_bound else 0.0
