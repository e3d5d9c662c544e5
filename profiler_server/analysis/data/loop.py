"""The training loop as it was measured: what each batch and each step cost, ready for the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Floats, Ints
from collector.format.parts import find_files
from collector.format.run import RankRun
from collector.format.schema.manifest import Loader
from collector.format.steps import StepSelection, read_integers
from profiler_server.analysis.data.feeding import Feed
from profiler_server.analysis.data.loader_simulation import Job, LoopModel, simulate
from profiler_server.analysis.data.pipeline import WORKER_STAGES

_MAX_ROWS = 200_000
_MODEL_BATCHES = 240
_CALIBRATION_ROUNDS = 7
_MIN_STAGE_CPU_NS = 50_000.0


@dataclass(frozen=True)
class BatchTimes:
    """Work on each batch, in the order in which the batches were asked for; every array has one value per batch.

    `cpu_ns` is None where no stage said how much of its time was on a processor. `stretch` is how many times longer
    than its processor time such work took, because others held the processors. `bytes` is the size of a batch, 0 where
    that is not known.
    """

    stages_ns: Mapping[str, Floats]
    total_ns: Floats
    cpu_ns: Floats | None
    samples: float
    stretch: float = 1.0
    bytes: float = 0.0

    @property
    def cpu_frac(self) -> float | None:
        if self.cpu_ns is None or not self.total_ns.sum():
            return None
        return min(1.0, float(self.cpu_ns.sum() / self.total_ns.sum()))

    def share(self, stage: str) -> float:
        """Return the part of all work that the stage took, 0 for a stage that is not there."""
        whole = float(self.total_ns.sum())
        return float(self.stages_ns[stage].sum()) / whole if whole and stage in self.stages_ns else 0.0


def read_batches(rank: RankRun, loader: int) -> BatchTimes | None:
    """Read what the stages of a loader did per batch, the latest 200,000 rows; None if nothing was recorded."""
    if not find_files(rank.folder, "stages"):
        return None
    names = ("stage", "kind", "loader", "epoch", "batch", "duration_ns", "cpu_ns", "items", "bytes")
    wanted = (pc.field("loader") == loader) & pc.field("batch").is_valid()
    rows = rank.table("stages", names, wanted)
    rows = rows.filter(pc.equal(rows["kind"].cast(pa.string()), "work"))
    rows = rows.filter(pc.is_in(rows["stage"].cast(pa.string()), pa.array(WORKER_STAGES)))
    if not rows.num_rows:
        return None
    return _pivot(rows.slice(max(0, rows.num_rows - _MAX_ROWS)))


def estimate_batches(feed: Feed, selection: StepSelection, watched: Loader) -> BatchTimes | None:
    """Return what the items of a watched input cost: the time in `next()`, where the training thread makes them there."""
    fetched = feed.fetches[selection.regular]
    fed = fetched > 0
    if watched.reads_ahead is not False or not fed.any():
        return None
    took = feed.wait_ns[selection.regular][fed] / fetched[fed]
    cpu = None if watched.cpu_frac is None else took * min(max(watched.cpu_frac, 0.0), 1.0)
    return BatchTimes({"read": took}, took, cpu, 0.0)


def _pivot(rows: pa.Table) -> BatchTimes | None:
    key = (read_integers(rows, "epoch") << 36) + read_integers(rows, "batch")
    batches, place = np.unique(key, return_inverse=True)
    stages = np.asarray(rows["stage"].cast(pa.string()).to_pylist(), dtype=object)
    duration = read_integers(rows, "duration_ns").astype(np.float64)
    cpu_known = rows["cpu_ns"].is_valid().to_numpy()
    found: dict[str, Floats] = {}
    counts: dict[str, int] = {}
    for stage in WORKER_STAGES:
        mask = stages == stage
        if mask.any():
            found[stage] = np.bincount(place[mask], duration[mask], len(batches)).astype(np.float64)
            counts[stage] = len(np.unique(place[mask]))
    # A batch of which not every stage was recorded (the run ended in it) would look cheap.
    usual = [stage for stage, count in counts.items() if count > len(batches) / 2]
    whole = np.all([found[stage] > 0 for stage in usual], axis=0)
    if not whole.any():
        return None
    cpu_rows = np.where(cpu_known, read_integers(rows, "cpu_ns"), 0)
    cpu = np.bincount(place, cpu_rows, len(batches))
    cpu_of = {stage: float(cpu_rows[stages == stage].sum()) for stage in found}
    total = np.sum(list(found.values()), axis=0)
    items = np.zeros(len(batches))
    np.maximum.at(items, place, read_integers(rows, "items").astype(np.float64))
    sizes = np.zeros(len(batches))
    np.maximum.at(sizes, place, read_integers(rows, "bytes").astype(np.float64))
    return BatchTimes(
        bytes=float(sizes[whole].mean()),
        stages_ns={stage: values[whole] for stage, values in found.items()},
        total_ns=total[whole],
        cpu_ns=np.minimum(cpu, total)[whole] if cpu_known.any() else None,
        samples=float(items[whole].mean()),
        stretch=_estimate_stretch(
            {stage: float(values.sum()) for stage, values in found.items()}, cpu_of, len(batches)
        ),
    )


def _estimate_stretch(wall_ns: Mapping[str, float], cpu_ns: Mapping[str, float], batches: int) -> float:
    """Say how much longer than its processor time pure processor work took.

    What a stage waits for (storage) cannot be told from waiting for a processor. But the stage that waits least, most
    often collate, hardly waits for storage, so its ratio is that of the processors. With one stage nothing is known.
    """
    ratios = [
        wall_ns[stage] / cpu_ns[stage]
        for stage in ("read", "transform", "collate")
        if stage in wall_ns and cpu_ns[stage] > _MIN_STAGE_CPU_NS * batches
    ]
    return max(1.0, min(ratios)) if len(ratios) > 1 else 1.0


@dataclass(frozen=True)
class Cores:
    """`usable` cores of the run, those that `training` asks for outside of the loader, and those that `others` use.

    `computes` says that steps run on the processors, not on a device. `stretch` is how much longer work took because of
    others, `process` the cores that the training process was on; both None where that was not sampled.
    """

    usable: float
    training: float
    others: float
    computes: bool
    stretch: float | None = None
    process: float | None = None


@dataclass(frozen=True)
class MeasuredLoop:
    """The model of the loop as it ran, and how well it reproduces the run.

    `own_ns` is the part of a regular step that is no wait for data, as measured; times of the model may be scaled.
    `fetches` is batches per step; a time of the model is per batch. `check` is simulated over measured step;
    between 0.9 and 1.1 the simulator is trusted. `assumed` says that the processor share of the work is a guess.
    `contention_frac` is the part of the processors that other programs took while work wanted them.
    """

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

    def predict_ns(self, changed: LoopModel) -> float:
        """Return the mean step after a change to the model; what the simulator does not explain stays."""
        measured = self.regular_step_ns / self.fetches
        before, after = self.check * measured, simulate(changed).step_ns
        left = (measured - before) * min(1.0, after / before) if before > 0 else measured - before
        return self.fetches * (after + left) + changed.extra_ns


def measure_loop(
    feed: Feed,
    selection: StepSelection,
    loader: Loader | None,
    batches: BatchTimes | None,
    cores: Cores,
    busy_frac: float = 0.0,
) -> MeasuredLoop | None:
    """Build the model of one loader from the regular steps and its recorded batches; None without regular steps.

    Without workers the time in `next()` is the work itself, so it stands in for batch times that were not recorded.
    A device that is busy for `busy_frac` of each step needs that time, however short the wait for data.
    """
    regular = selection.regular
    if not regular.any():
        return None
    duration, wait = selection.duration_ns[regular], feed.wait_ns[regular]
    wait = np.minimum(wait, (duration * (1.0 - busy_frac)).astype(np.int64))
    fetched = _count_batches(feed.fetches[regular])
    fetches = float(fetched.mean())
    own = ((duration - wait) / fetched)[-_MODEL_BATCHES:]
    stretch = cores.stretch or (batches.stretch if batches is not None else 1.0)
    jobs, assumed = _build_jobs(batches, loader, (wait / fetched)[-_MODEL_BATCHES:], stretch)
    regular_ns = float(duration.mean())
    making_ns = _find_making(loader, batches, fetches)
    asked = replace(cores, training=_measure_training(cores, regular_ns, float((duration - wait).mean()), making_ns))
    kept = _keep_alone(asked.training, stretch) if cores.computes and jobs else 1.0
    model = LoopModel(
        batches=jobs,
        steps=tuple(Job(float(wall) * kept, min(asked.training / kept, cores.usable)) for wall in own),
        workers=loader.num_workers if loader else 0,
        prefetch=(loader.prefetch_factor or 2) if loader else 2,
        in_order=loader.in_order if loader else True,
        cores=cores.usable,
        others=_estimate_others(jobs, loader, asked, stretch),
        extra_ns=float(selection.duration_ns[selection.kept].mean()) - regular_ns,
    )
    model, check = _calibrate(model, regular_ns / fetches)
    own_ns = float((duration - wait).mean())
    return MeasuredLoop(model, fetches, regular_ns, own_ns, check, assumed, _find_contention(model))


def _count_batches(fetches: Ints) -> Floats:
    """Return the batches of each step. Where a step fetches a group for those that follow, each uses as many as the mean."""
    if fetches.max() > 1 and not fetches.min():
        return np.full(len(fetches), fetches.mean())
    return np.maximum(fetches, 1).astype(np.float64)


def _find_making(loader: Loader | None, batches: BatchTimes | None, fetches: float) -> float | None:
    """Return the processor time per step of batches that the training process makes, None where that is not known."""
    if loader is None or loader.num_workers:
        return 0.0
    return None if batches is None or batches.cpu_ns is None else fetches * float(batches.cpu_ns.mean())


def _measure_training(cores: Cores, step_ns: float, own_ns: float, making_ns: float | None) -> float:
    """Return how many cores training is on while it does not wait for data, from what its process used as a whole.

    A thread that sleeps, or waits for a device, needs no core however many threads PyTorch may start. `making_ns` is
    the processor time per step of batches that the process makes itself, None where that is not known.
    """
    if cores.process is None or own_ns <= 0:
        return cores.training
    used_ns = cores.process * (own_ns if making_ns is None else step_ns)
    return min(max(used_ns - (making_ns or 0.0), 0.01 * own_ns) / own_ns, cores.usable)


def _keep_alone(training: float, stretch: float) -> float:
    """Return the part of a step that stays on a quiet host: what waits stays whole, what computes is no longer stretched."""
    computing = min(training, 1.0 / stretch)
    return 1.0 - computing * (stretch - 1.0)


def _find_contention(model: LoopModel) -> float:
    """Return the part of the processors that is asked for by other programs."""
    loading = max(model.workers, 1) * sum(job.cores for job in model.batches) / max(len(model.batches), 1)
    own = loading + (model.steps[0].cores if model.workers else 0.0)
    return model.others / max(model.cores, model.others + own)


def _build_jobs(
    batches: BatchTimes | None, loader: Loader | None, waits: Floats, stretch: float
) -> tuple[tuple[Job, ...], bool]:
    if batches is not None:
        total = batches.total_ns[-_MODEL_BATCHES:]
        cpu = total if batches.cpu_ns is None else batches.cpu_ns[-_MODEL_BATCHES:]
        alone = np.maximum(cpu, total - cpu * (stretch - 1.0))
        jobs = tuple(Job(float(w), float(min(1.0, c / w)) if w else 0.0) for w, c in zip(alone, cpu, strict=True))
        return jobs, batches.cpu_ns is None
    if loader is not None and loader.num_workers == 0:
        return tuple(Job(float(wait), 1.0) for wait in waits), True
    return (), True


def _estimate_others(jobs: tuple[Job, ...], loader: Loader | None, cores: Cores, stretch: float) -> float:
    """Return how many cores other programs ask for: what makes the stretch that was seen, or what they were seen to use.

    Programs that queue for a processor ask for more than they get.
    """
    if stretch <= 1.05 or not jobs:
        return cores.others
    workers = loader.num_workers if loader else 0
    loading = max(workers, 1) * sum(job.cores for job in jobs) / len(jobs)
    return max(cores.others, stretch * cores.usable - loading - (cores.training if workers else 0.0))


def _calibrate(model: LoopModel, step_ns: float) -> tuple[LoopModel, float]:
    """Take out of the recorded times what is waiting for a core, so that the simulator does not count it twice.

    Times recorded on a busy host are already stretched. Where the simulated step is too long, all times are shortened
    by one factor (their processor time stays) until it fits.
    """
    check = simulate(model).step_ns / step_ns if step_ns else 1.0
    if check <= 1.02 or model.workers == 0:
        return model, check
    low, high = 0.3, 1.0
    fitted, best = model, check
    for _ in range(_CALIBRATION_ROUNDS):
        middle = (low + high) / 2
        fitted = _shorten(model, middle)
        best = simulate(fitted).step_ns / step_ns
        low, high = (low, middle) if best > 1.0 else (middle, high)
    return fitted, best


def _shorten(model: LoopModel, factor: float) -> LoopModel:
    def shorten(job: Job, most: float) -> Job:
        least = job.wall_ns * min(job.cores, most) / most
        wall = max(job.wall_ns * factor, least)
        return Job(wall, min(most, job.cores * job.wall_ns / wall) if wall else 0.0)

    steps = tuple(Job(job.wall_ns * factor, job.cores) for job in model.steps)
    return replace(model, batches=tuple(shorten(job, 1.0) for job in model.batches), steps=steps)
