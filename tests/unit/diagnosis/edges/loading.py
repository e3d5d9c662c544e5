"""Thresholds of the rules on loading and on processors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from profiler_server.facts.case import Case
from profiler_server.facts.loading import Bottleneck, LoaderArguments
from profiler_server.facts.steps import Part
from tests.support import facts as make
from tests.support.runs import MS
from tests.unit.diagnosis.edges.base import STEPS, Edge, base, named, sampled, starving, whole


def restart(count: int) -> Case:
    first = np.arange(STEPS) % (STEPS // count) == 0 if count else np.zeros(STEPS, np.bool_)
    return make.with_steps(base(), selection=replace(base().steps.selection, first_of_epoch=first))


def uneven(spread: float, load: float = 0.3) -> Case:
    """Batches that are fast or slow by turns; the median one loads the workers to this share."""
    middle = load * base().loading.loop.own_ns * 2 * (1 - 0.4)
    times = np.array([1 - spread, 1 - spread, 1 + spread, 1 + spread, 1.0]) * np.sqrt(5 / 4)
    times = 1 + (times - times.mean()) / times.std() * spread
    case = make.with_loop(starving(), regular_step_ns=base().loading.loop.own_ns)
    return make.with_batches(make.with_wait(case, 0.4), times / np.median(times) * middle)


def busy_workers(busy: float) -> Case:
    case = make.with_jobs(starving(), 400.0 * MS, 0.1)
    return make.with_batches(case, busy * 2 * case.loading.loop.regular_step_ns)


def lightly_loaded(load: float) -> Case:
    case = make.with_model(starving(), prefetch=1)
    jobs = tuple(
        replace(case.loading.loop.model.batches[0], wall_ns=(20.0 if n % 2 else 200.0) * MS) for n in range(40)
    )
    own = case.loading.loop.regular_step_ns - case.loading.wait_ns
    return make.with_batches(make.with_model(case, batches=jobs), load * 2 * own)


def capped(need: float, demand: float = 1.0) -> Case:
    case = make.with_load(make.with_jobs(starving(), 100.0 * MS, need), system=demand * 4.0)
    return make.with_model(case, workers=4)


def in_memory(sample_ns: float) -> Case:
    case = make.with_loader(make.with_jobs(starving(), sample_ns * 100, 1.0), batch_size=100)
    return make.with_loading(case, batches=None)


def sending(batch_ns: float) -> Case:
    case = make.with_loader(starving(), num_workers=0, batch_size=1)
    return make.with_loading(make.with_jobs(case, batch_ns, 0.1), batches=None)


def receiving(batch_bytes: float) -> Case:
    """The base, waiting to receive finished batches of this size."""
    case = make.with_load(make.with_loading(starving(), bottleneck=Bottleneck("send", "", "receiving")), system=1.0)
    assert case.loading.batches is not None
    return make.with_loading(case, batches=replace(case.loading.batches, bytes=batch_bytes))


def pickling(share: float) -> bool:
    """Say whether sending is blamed, which takes this part of the wait for finished batches and is the longest stage."""
    case = receiving(1.0)
    batches = case.loading.batches
    assert batches is not None
    send = np.full(len(batches.total_ns), share * case.loading.wait_ns / case.loading.loop.fetches)
    sent = replace(batches, stages_ns={"read": send * 0.5, "send": send}, total_ns=send * 1.5)
    return make.speaks(make.with_loading(case, batches=sent), "ipc_bound")


def crowded(queued: float) -> Case:
    """The base beside workers that compute, with a training thread that queues for this share of its time."""
    return make.with_load(make.with_batches(base(), 80.0 * MS, 0.9), workers=1.4, queued_frac=queued)


def busier(by: float) -> bool:
    first, last = (replace(make.QUIET, others=others) for others in (0.4, 0.4 + by * 4.0))
    return replace(base().host, first=first, last=last).got_busier


def free(time_ns: float) -> Case:
    """Free the batch before on a line of the loop, which takes so long, beside slow sending."""
    case = receiving(1.0)
    batches = case.loading.batches
    assert batches is not None
    send = np.full(len(batches.total_ns), case.loading.wait_ns)
    sent = replace(batches, stages_ns={"read": send * 0.5, "send": send}, total_ns=send * 1.5)
    case = make.with_share(make.with_loading(case, batches=sent), "h2d", time_ns / case.steps.mean_ns)
    case = make.with_steps(case, operator_fracs={})
    stacks = sampled({("h2d",): Part("h2d", 100, (named(is_own_line=True),))})
    return replace(case, stacks=stacks)


def read_ahead(need: float) -> bool:
    """Say whether a reader of the user's own that needs a processor for so much of its work is told to be a process."""
    case = make.with_jobs(starving(), 10.0 * MS, need)
    watched = LoaderArguments(0, "words", "iterable", reads_ahead=False)
    case = make.with_loading(case, loader=None, watched=watched, batches=None)
    return "a thread of Python would hold" in make.find(case, "watched_input").text.advice


EDGES: Mapping[str, Edge] = {
    "CAPPED_NEED": Edge(0.5, lambda x: capped(x).is_capped),
    "CAPPED_DEMAND_FRAC": Edge(0.9, lambda x: capped(0.9, x).is_capped),
    "CROWDED_FRAC": Edge(0.10, lambda x: make.speaks(crowded(x), "workers_take_processors")),
    "NOISY_FRAC": Edge(0.25, lambda x: make.speaks(make.with_load(base(), others=4.0 * x), "noisy_host")),
    "BUSIER_FRAC": Edge(0.10, busier),
    "THREADS_COMPUTE_FRAC": Edge(
        0.30,
        lambda x: make.speaks(
            make.with_manifest(
                make.with_steps(base(), phases_ns=dict.fromkeys(base().steps.phases_ns, 0.0) | {"forward": 64e6 * x}),
                torch_threads=32,
            ),
            "threads_over_cores",
        ),
    ),
    "IN_MEMORY_NS": Edge(30_000.0, lambda x: not make.speaks(in_memory(x), "in_memory_fetch")),
    "SEND_NS": Edge(300_000.0, lambda x: make.speaks(sending(3 * x), "no_workers")),
    "WORKERS_BUSY_FRAC": Edge(0.8, lambda x: make.speaks(busy_workers(x), "too_few_workers")),
    "PREFETCH_LOAD_FRAC": Edge(0.95, lambda x: not make.speaks(lightly_loaded(x), "shallow_prefetch")),
    "UNEVEN_SPREAD": Edge(0.5, lambda x: make.speaks(uneven(x), "uneven_samples")),
    "UNEVEN_LOAD_FRAC": Edge(0.7, lambda x: not make.speaks(uneven(0.8, x), "uneven_samples")),
    "LARGE_BATCH_BYTES": Edge(1 << 20, lambda x: make.speaks(receiving(x), "ipc_bound")),
    "SENDING_WAIT_FRAC": Edge(0.5, pickling),
    "FREEING_NS": Edge(500_000.0, lambda x: "freeing the batch" in make.find(free(x), "ipc_bound").text.measured),
    "READER_NEED": Edge(0.5, read_ahead),
    "MIN_RESTARTS": Edge(2, lambda x: make.speaks(restart(whole(x)), "worker_restart")),
}
