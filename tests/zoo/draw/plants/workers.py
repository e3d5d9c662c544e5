"""What keeps workers from being of use: their number, their order, their depth, their start."""

import random

from tests.zoo.draw.parts import Plan, Plant, Work

KEPT = {"persistent_workers": True}
SENT = ("map", "inline")


def _plan_uneven(work: Work, choice: random.Random) -> Plan:
    """One sample in many takes so long that all workers' finished batches wait behind it."""
    rare = choice.choice((9, 11, 13)) * work.batch - 1
    workers = choice.choice((2, 3))
    pause_ms = choice.choice((26, 32))
    # The mean work stays below what the workers can do, the longest is beyond what they have made ahead.
    long_s = 0.55 * workers * pause_ms / 1000 * rare / work.batch
    return Plan(
        loading={"num_workers": workers, **KEPT},
        loading_fixed={"num_workers": workers, "prefetch_factor": 8, "in_order": False, **KEPT},
        reach=f"time.sleep({long_s:.3f} if index % {rare} == 5 else 0.0002)  # some lie in the archive",
        reach_both=True,
        pause_ms=pause_ms,
        steps=120,
    )


_LONG = """time.sleep(0.0001)
if index % $rare == 5:
    # a few are far longer than the others
    until = time.thread_time() + $long
    while time.thread_time() < until:
        sum(range(1000))"""


def _plan_uneven_work(work: Work, choice: random.Random) -> Plan:
    rare = choice.choice((10, 12)) * work.batch - 1
    long_s = 0.5 * 2 * 0.03 * rare / work.batch
    return Plan(
        loading={"num_workers": 2, **KEPT},
        loading_fixed={"num_workers": 2, "prefetch_factor": 8, "in_order": False, **KEPT},
        reach=_LONG.replace("$rare", str(rare)).replace("$long", f"{long_s:.3f}"),
        reach_both=True,
        pause_ms=30,
        steps=120,
    )


def _plan_shallow(work: Work, choice: random.Random) -> Plan:
    """The store pauses now and then: one batch ahead does not last so long, ten do."""
    every = choice.choice((6, 8)) * work.batch
    pause_ms = choice.choice((28, 34))
    stop_s = 0.8 * pause_ms / 1000 * every / work.batch
    return Plan(
        loading={"num_workers": 1, "prefetch_factor": 1, **KEPT},
        loading_fixed={"num_workers": 1, "prefetch_factor": 16, **KEPT},
        reach=f"time.sleep({stop_s:.3f} if index % {every} == {every - 1} else 0.0001)  # the store makes a pause",
        reach_both=True,
        pause_ms=pause_ms,
        steps=120,
    )


_CATALOGUE = """
def open_catalogue(worker):
    \"\"\"Every worker lays out its own catalogue.\"\"\"
    rng = np.random.default_rng(worker)
    for _ in range($rounds):
        order = np.argsort(rng.standard_normal(200_000))
    get_worker_info().dataset.catalogue = order
"""


def _plan_restart(work: Work, choice: random.Random) -> Plan:
    start = {"num_workers": choice.choice((2, 3)), "worker_init_fn": "open_catalogue"}
    return Plan(
        loading=start,
        loading_fixed={**start, **KEPT},
        pause_ms=choice.choice((16, 22)),
        epochs=choice.choice((10, 12)),
        steps=120,
        data={"definitions": _CATALOGUE.replace("$rounds", str(choice.choice((22, 28))))},
    )


_SKIP = """
class $data(IterableDataset):
    def __init__(self, where, length):
        self.where, self.length = where, length

    def __iter__(self):
        info = get_worker_info()
        mine, workers = (info.id, info.num_workers) if info else (0, 1)
        for index in range(self.length):
            if args.fixed and index % workers != mine:
                continue
            raw = $load(self.where, index)
            made = $item
            if index % workers == mine:
                yield made
"""


def _plan_everything(work: Work, choice: random.Random) -> Plan:
    """Every worker makes all samples and hands out its own part of them: the work grows with the workers."""
    return Plan(
        loading={"num_workers": choice.choice((5, 6)), **KEPT},
        loading_fixed={"num_workers": 2, **KEPT},
        swap="transform",
        swap_both=True,
        pause_ms=30,
        steps=50,
        data={"dataset": _SKIP, "batch": str(max(2, work.slow_batch["transform"] // 3))},
    )


PLANTS = (
    Plant(
        "uneven_samples",
        "a few samples lie in an archive, and batches are taken in order",
        _plan_uneven,
        also=frozenset({"shallow_prefetch"}),
        feeds=SENT,
        without=("reinforcement",),
        share=3,
    ),
    Plant(
        "uneven_samples",
        "a few samples take long to compute, and batches are taken in order",
        _plan_uneven_work,
        also=frozenset({"shallow_prefetch"}),
        feeds=SENT,
        without=("reinforcement",),
        share=1,
    ),
    Plant(
        "shallow_prefetch",
        "a store pauses now and then, and one batch is made ahead",
        _plan_shallow,
        also=frozenset({"uneven_samples"}),
        feeds=SENT,
        without=("reinforcement",),
        share=3,
    ),
    Plant(
        "worker_restart",
        "workers are started for each of many short epochs",
        _plan_restart,
        also=frozenset({"slow_start"}),
        feeds=("map", "inline", "iterable"),
        without=("reinforcement",),
        share=4,
    ),
    Plant(
        "oversubscribed_workers",
        "every worker makes all samples and keeps its part",
        _plan_everything,
        also=frozenset({"workers_capped_by_cores", "slow_read", "slow_transform"}),
        feeds=("iterable",),
        needs="transform",
        share=2,
    ),
)
