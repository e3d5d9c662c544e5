"""Thresholds of the rules on what is noted of samplers, files, processes and ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from profiler_server.analysis.ranks.ranks import read_ddp
from profiler_server.diagnosis.limits.facts import COPY_BYTES_PER_NS
from profiler_server.facts.case import Case
from profiler_server.facts.job import LateRank, RankComparison, RankVerdict, Slow, Turns
from profiler_server.facts.loading import Crowding, Reading, SamplerTimes
from profiler_server.facts.machine import HeldClock, RepeatedBackwards, RepeatedNodes, Replayed, Sighting, SpareNodes
from profiler_server.facts.steps import Logged, ModelCalls, UnusedGradients
from tests.support import facts as make
from tests.support.host_cases import ddp
from tests.support.runs import MS
from tests.unit.diagnosis.edges.base import STEPS, Edge, base, starving, whole
from tests.unit.diagnosis.edges.lines import spot, with_lines, work

_READ = Reading(100.0 * MS, 2, 0.1, 32.0, 1e6, None, None, None, None, None)


def sampling(share: float) -> Case:
    case = make.with_wait(base(), max(share, 0.2))
    times = SamplerTimes("Weighted", share * case.steps.mean_ns)
    return make.with_loading(case, sampler=times, bottleneck=replace(case.loading.bottleneck, cause="receiving"))


def reading(**fields: Any) -> Case:
    """Workers that are late with reading, of which something was recorded."""
    return make.with_loading(starving(), reading=replace(_READ, **fields))


def advises_storage(moved: float) -> bool:
    """Say whether reading that a processor does, and that moves bytes for so much of it, is told to read larger pieces."""
    case = reading(cpu_frac=0.9, bytes=moved * 100.0 * MS * COPY_BYTES_PER_NS)
    return "larger pieces" in make.find(case, "slow_read").text.advice


def sharing(added: float) -> Case:
    """Twice as many workers get so much more, as a share of twice as much."""
    return reading(crowding=Crowding(1.0, 2.0, 1e8, 1e8 * (1.0 + added)))


def decoding(whole_bytes: float) -> Case:
    case = make.with_load(make.with_jobs(reading(cpu_frac=0.9), 100.0 * MS, 0.9), system=4.0)
    case = make.with_loader(make.with_model(case, workers=4), length_batches=100)
    case = make.with_batches(case, np.full(40, 100.0 * MS))
    assert case.loading.batches is not None
    return make.with_loading(case, batches=replace(case.loading.batches, bytes=whole_bytes / 100))


def untrained(share: float) -> Case:
    """A backward of half the step, in which that share of the parameters belongs to a model that nobody trains."""
    unused = UnusedGradients(round(1e6 * share), 0, round(1e6 * (1 - share)))
    phases = dict.fromkeys(base().steps.phases_ns, 0.0) | {"backward": 32.0 * MS, "optimizer": 1.0 * MS}
    return replace(make.with_steps(base(), phases_ns=phases), unused=unused)


def thrown(share: float, of_line: float = 1.0) -> Case:
    """A backward of half the step, of which a window shows that this share was for nothing, part of it in one line."""
    case = untrained(0.5)
    noted = UnusedGradients(1_000_000, 1_000_000, 2_000_000, backward_frac=share)
    made = spot(work=replace(work(), unused_frac=of_line * share))
    return replace(with_lines(made, case=case), unused=noted)


def calls(**fields: Any) -> Case:
    """Forward and backward are half of the step each; the model is called in five steps that were looked at."""
    phases = dict.fromkeys(base().steps.phases_ns, 0.0) | {"forward": 32.0 * MS, "backward": 32.0 * MS}
    found = ModelCalls(**{"model": "Tagger", "place": "train.py:31", "looks": 5, "calls": 5, **fields})
    return replace(make.with_steps(base(), phases_ns=phases), calls=(found,))


def padded(padding: float, longest: float = 0.5, **fields: Any) -> Case:
    return calls(**{"padded": 5, "useful_frac": 1.0 - padding, "longest_frac": longest, **fields})


def computed_again(share: float, of_line: float = 1.0) -> Case:
    """Operators are called again with the same inputs for a share of the step, part of that time by one line."""
    case = with_lines(spot(work=replace(work(), again_frac=of_line)), case=calls())
    return replace(case, calls=(), repeated=RepeatedNodes(11, ((1, 2, 0, 2),), share * case.steps.mean_ns))


def swept(share: float, kind: Literal["losses", "inputs", "parts"] = "losses") -> Case:
    """Three backwards run through the same nodes, for a share of the step after the first."""
    found = RepeatedBackwards(11, ((1, 2, 1, 2),), share * base().steps.mean_ns, kind, 3, "train.py:31")
    return replace(calls(), calls=(), swept=found)


def spared(share: float, of_line: float = 1.0, line_share: float = 0.4) -> Case:
    """A selection keeps a quarter of the rows; the others take a share of the step, part of it in one line."""
    case = with_lines(spot(line_share, work=replace(work(), spare_frac=of_line)), case=calls())
    found = SpareNodes(11, ((1, 2, 0, 2),), share / 0.75 * case.steps.mean_ns, 0.25)
    return replace(case, calls=(), spare=found)


def repeated(share: float, **fields: Any) -> Case:
    again_ns = round(fields.get("looks", 5) * share * 64 * MS)
    return calls(**{"calls": 10, "again": 5, "again_ns": again_ns, **fields})


def _is_too_wide(longest: float) -> bool:
    return "longest row of each batch" in make.find(padded(0.5, longest), "padding_waste").text.fix


def _names_line(of_line: float) -> bool:
    return "train.py:41" in make.find(thrown(0.5, of_line), "needless_grad").text.measured


def logging(share: float, outside: float = 0.5) -> Case:
    """Logging takes a share of the step, of which so much is outside of training."""
    case = make.with_share(make.with_share(make.split_step(base(), tail=outside), "tail", outside), "gap", 0.0)
    return make.with_steps(case, logged=Logged("W&B", 9, share * case.steps.mean_ns, 9))


def names_logging(case: Case) -> bool:
    return "W&B" in make.find(case, "python_gap").text.title


def collecting(share: float) -> Case:
    """Half of each step is outside of training, and collects garbage for that share of the step."""
    case = make.with_share(make.with_share(make.split_step(base(), tail=0.5), "tail", 0.5), "gap", 0.0)
    return make.with_rows(case, gc_ns=share * case.steps.selection.duration_ns)


def nodes(computing: float) -> Case:
    case = make.with_manifest(base(), torch_threads=4, usable_cores=4.0, facts={"numa_nodes": 2})
    phases = dict.fromkeys(case.steps.phases_ns, 0.0) | {"forward": computing * case.steps.mean_ns}
    return make.with_steps(case, phases_ns=phases)


def crowd(cores: float) -> Case:
    return make.with_load(make.with_loader(base(), num_workers=4), busiest_worker=cores, system=4.0)


def exchanging(share: float, world_size: int = 2, **changes: Any) -> Case:
    """Two ranks that communicate for a share of the step."""
    case = make.with_share(base(), "communication", share)
    return replace(case, ranks=replace(case.ranks, world_size=world_size, ddp=read_ddp(ddp(**changes))))


def accumulating(saved: float, backwards: float = 2.0) -> Case:
    case = make.with_rows(exchanging(2 * saved), optimizer_steps=100)
    return make.with_rows(case, backwards=backwards * 100)


def compared(behind_ns: float = 0.0, **fields: Any) -> RankComparison:
    """Return two ranks, of which rank 1 is behind by so much because it waits for its data."""
    step_ns = base().steps.mean_ns
    late = LateRank(1, step_ns, step_ns - behind_ns, "data_wait", behind_ns, 0.0, 1, gain_ns=behind_ns)
    return RankComparison(late, "steps", STEPS, STEPS, step_ns, {0: 0.0, 1: behind_ns}, {0: 0.0, 1: 1.0}, **fields)


def judged(verdict: RankVerdict) -> Case:
    case = make.with_share(base(), "communication", 0.5)
    return replace(case, ranks=replace(case.ranks, world_size=2, verdict=verdict))


def turning(share: float) -> Case:
    return judged(Turns(compared(), share * base().steps.mean_ns, (), 1.0))


def late_for_data(share: float) -> Case:
    """Rank 1 waits longer for its data than rank 0, by so much of the step."""
    return judged(Slow(compared(share * base().steps.mean_ns)))


def copying(share: float, bytes_per_s: float = 5e9) -> Case:
    size = share * 64e-3 * bytes_per_s / 2
    return exchanging(0.0, gradient_as_bucket_view=0, parameter_bytes=round(size))


def throttled(lost: float) -> Case:
    """A device that is busy all the time and runs at half of its clock for a part of it."""
    return make.with_device(base(), busy=0.9, held_clock=HeldClock("gpu 0", 2 * lost, 0.7e9, 1.4e9, True))


def varying(spread: float) -> Case:
    """A fifth of the steps are shorter, a fifth longer, so far apart."""
    factors = 1.0 + spread * np.resize([-0.5, 0.0, 0.0, 0.0, 0.5], STEPS)
    return make.with_durations(make.with_rows(base(), data_wait_ns=0), lambda durations: durations * factors)


def sends(bucket_bytes: float) -> Case:
    """Ten reductions a step of buckets of this size, whose times their sizes do not explain."""
    seen = Sighting(10.0, 32.0 * MS, (), None, {"bytes": 10 * bucket_bytes})
    replay = Replayed(5, 5e6, 5e6, seen={"larger_buckets": seen})
    return make.with_device(base(), replay=replay)


EDGES: Mapping[str, Edge] = {
    "UNUSED_GRADIENTS_FRAC": Edge(0.3, lambda x: make.speaks(untrained(x), "needless_grad")),
    "NEEDLESS_STEP_FRAC": Edge(
        0.1,
        lambda x: (
            make.speaks(thrown(2 * x), "needless_grad")
            and make.speaks(padded(0.5, wide_fracs=(2 * x, 0.0)), "padding_waste")
        ),
    ),
    "UNUSED_LINE_FRAC": Edge(0.5, _names_line),
    "PADDED_FRAC": Edge(0.25, lambda x: make.speaks(padded(x), "padding_waste")),
    "LONGEST_FRAC": Edge(0.9, lambda x: not _is_too_wide(x)),
    "LEAST_LOOKS": Edge(2, lambda x: make.speaks(padded(0.5, looks=whole(x)), "padding_waste")),
    "LEAST_REPEATS": Edge(3, lambda x: make.speaks(repeated(0.2, looks=whole(x)), "repeated_call")),
    "OFTEN_FRAC": Edge(0.9, lambda x: make.speaks(repeated(0.2, looks=100, again=whole(100 * x)), "repeated_call")),
    "LEAST_KNOWN": Edge(3, lambda x: make.speaks(calls(known=whole(x), known_ns=round(MS * 64)), "repeated_call")),
    "REPEATED_FRAC": Edge(
        0.05,
        lambda x: all(make.speaks(plant(x), "repeated_call") for plant in (repeated, computed_again, swept)),
    ),
    "LAUNCHING_FRAC": Edge(0.9, lambda x: not make.speaks(spared(0.3, line_share=x), "late_selection")),
    "SPARE_FRAC": Edge(0.12, lambda x: make.speaks(spared(x), "late_selection")),
    "REPEATED_LINE_FRAC": Edge(
        0.5, lambda x: "train.py:41" in make.find(computed_again(0.2, x), "repeated_call").text.measured
    ),
    "SAMPLER_FRAC": Edge(0.05, lambda x: make.speaks(sampling(x), "slow_sampler")),
    "COMPUTED_READ_FRAC": Edge(0.5, advises_storage),
    "OPENING_FRAC": Edge(0.2, lambda x: make.speaks(reading(files=64.0, open_ns=x * 100.0 * MS), "small_files")),
    "SMALL_FILE_BYTES": Edge(
        1 << 20, lambda x: not make.speaks(reading(files=2.0, open_ns=50.0 * MS, bytes=2 * x), "small_files")
    ),
    "STORAGE_YIELD_FRAC": Edge(0.25, lambda x: not make.speaks(sharing(x), "storage_bandwidth")),
    "MOST_CACHED_BYTES": Edge(256 << 30, lambda x: not make.speaks(decoding(x), "repeated_decode")),
    "COLD_RATIO": Edge(1.5, lambda x: make.speaks(reading(first_ns=x * 100.0 * MS, later_ns=100.0 * MS), "cold_cache")),
    "LOGGING_FRAC": Edge(0.05, lambda x: make.speaks(logging(x, 0.08), "python_gap")),
    "LOGGED_FRAC": Edge(0.6, lambda x: names_logging(logging(0.5 * x))),
    "COLLECTED_FRAC": Edge(0.6, lambda x: not make.speaks(collecting(0.5 * x), "python_gap")),
    "COMPUTE_FRAC": Edge(0.6, lambda x: make.speaks(nodes(x), "numa")),
    "WORKER_CORES": Edge(1.5, lambda x: make.speaks(crowd(x), "threads_in_workers")),
    "THROTTLED_FRAC": Edge(
        0.05,
        lambda x: make.speaks(make.with_load(base(), throttled_frac=x, throttled_cores=4.0), "cgroup_throttling"),
    ),
    "PYTHON_CORES": Edge(
        0.15, lambda x: make.speaks(make.with_load(base(), python_threads=x, main_thread=0.5), "gil_contention")
    ),
    "CLOCK_LOST_FRAC": Edge(0.05, lambda x: make.speaks(throttled(x), "clock_throttle")),
    "JITTER_FRAC": Edge(1.0, lambda x: make.speaks(varying(x), "jitter")),
    "MEMORY_STALL_FRAC": Edge(
        0.10, lambda x: make.speaks(make.with_load(base(), memory_stall_frac=x), "memory_pressure")
    ),
    "UNSYNCED_FRAC": Edge(0.05, lambda x: make.speaks(accumulating(x), "no_sync_missing")),
    "MIN_ACCUMULATED": Edge(1.9, lambda x: make.speaks(accumulating(0.2, x), "no_sync_missing")),
    "GLOO_FRAC": Edge(0.05, lambda x: make.speaks(exchanging(x, device_type="cuda"), "gloo_on_cuda")),
    "COPIES_FRAC": Edge(0.05, lambda x: make.speaks(copying(x), "bucket_copies")),
    "USUAL_BUCKET_BYTES": Edge(10 << 20, lambda x: make.find(sends(x), "bucket_size") is None),
    "ROTATING_FRAC": Edge(0.10, lambda x: make.speaks(turning(x), "rotating_straggler")),
    "RANK_LOADER_FRAC": Edge(0.10, lambda x: make.speaks(late_for_data(x), "slow_rank_loader")),
}
