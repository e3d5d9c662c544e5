"""What makes the samples of a batch take long: the way they are read, transformed and put together."""

import random
from dataclasses import replace

from tests.zoo.draw.parts import Choose, Plan, Plant, Work

KEPT = {"persistent_workers": True}


def _pace(plan: Plan, work: Work, choice: random.Random) -> Plan:
    """Let the network sleep as an accelerator would, or compute as long."""
    if choice.random() < 0.3 and int(plan.data.get("batch", 0)) <= 2 * work.batch:
        return replace(plan, size="wide", pause_ms=0)
    return replace(plan, pause_ms=plan.pause_ms or choice.choice((18, 22, 26)))


def _swap(part: str, workers: int) -> Choose:
    def plan(work: Work, choice: random.Random) -> Plan:
        options = {"num_workers": workers, **KEPT}
        batch = {"batch": str(work.slow_batch[part])}
        return _pace(Plan(loading=options, swap=part, data=batch), work, choice)

    return plan


def _plan_no_workers(work: Work, choice: random.Random) -> Plan:
    part = choice.choice([name for name in work.swaps if name != "collate"])
    return Plan(
        loading={"num_workers": 0},
        loading_fixed={"num_workers": 2, **KEPT},
        swap=part,
        swap_both=True,
        pause_ms=choice.choice((45, 55)),
        data={"batch": str(max(2, work.slow_batch[part] * 6 // 10))},
        steps=80,
    )


def _plan_far_store(work: Work, choice: random.Random) -> Plan:
    wait_ms = choice.choice((24, 32)) / work.batch
    return Plan(
        loading={"num_workers": 0},
        loading_fixed={"num_workers": 2, **KEPT},
        reach=f"time.sleep({wait_ms / 1000:.5f})  # the store answers",
        reach_both=True,
        pause_ms=choice.choice((24, 30)),
    )


def _plan_generator(work: Work, choice: random.Random) -> Plan:
    part = choice.choice([name for name in work.swaps if name != "collate"])
    return Plan(
        loading={"num_workers": 0},
        loading_fixed={"num_workers": 1},
        swap=part,
        swap_both=True,
        pause_ms=48,
        data={"batch": str(max(2, work.slow_batch[part] * 5 // 10))},
        steps=80,
    )


def _plan_too_few(work: Work, choice: random.Random) -> Plan:
    wait_ms = choice.choice((5, 7, 9)) * 16 / work.batch
    need = choice.choice((4, 5))
    return Plan(
        loading={"num_workers": 1, **KEPT},
        loading_fixed={"num_workers": need + 1, **KEPT},
        reach=f"time.sleep({wait_ms / 1000:.4f} * (0.6 + 0.8 * (index * 37 % 11) / 10))  # the store answers",
        reach_both=True,
        pause_ms=round(wait_ms * work.batch / need),
        steps=70,
    )


def _plan_small_files(work: Work, choice: random.Random) -> Plan:
    return _pace(
        Plan(loading={"num_workers": 2, **KEPT}, swap="load", data={"batch": str(work.slow_batch["load"])}),
        work,
        choice,
    )


_KEPT_DATA = """
class $data(Dataset):
    def __init__(self, where, length):
        self.where, self.length = where, length
        self.kept = {}
        if args.fixed:
            self.kept = {number: $load(where, number) for number in range(KINDS)}

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        raw = self.kept[index % KINDS] if self.kept else $load(self.where, index % KINDS)
        return $item
"""


def _plan_repeated(work: Work, choice: random.Random) -> Plan:
    """Few samples, read anew in each of many epochs; the fixed form reads them once."""
    workers = choice.choice((1, 2))
    dataset = _KEPT_DATA.replace("KINDS", "20")
    definitions = {"dataset": dataset, "batch": str(work.slow_batch["load"])}
    feeding = f"data = {work.data}(where, STEPS // EPOCHS * BATCH)\nloader = DataLoader(data, BATCH"
    feeding += f"{f', collate_fn={work.collate_name}' if work.collate else ''}, shuffle=True, **loader_options())"
    return Plan(
        loading={"num_workers": workers, **KEPT},
        swap="load",
        swap_both=True,
        pause_ms=20,
        epochs=5,
        data={**definitions, "loader": feeding},
    )


_MEMORY = """tensors = ($tensors)
data = TensorDataset(*[part[torch.randint(0, len(part), (40_000,))] for part in tensors])
drawn = RandomSampler(data, replacement=True, num_samples=STEPS * BATCH)
if args.fixed:
    whole = BatchSampler(drawn, BATCH, drop_last=False)
    loader = DataLoader(data, sampler=whole, batch_size=None)
else:
    loader = DataLoader(data, BATCH, sampler=drawn)"""


def _plan_in_memory(work: Work, choice: random.Random) -> Plan:
    # TensorDataset takes a list of indices as it takes one index.
    return Plan(
        size="narrow",
        data={"loader": _MEMORY.replace("$tensors", work.tensors), "batch": str(choice.choice((4096, 5120)))},
        threads="1",
    )


_NOTES = """
def make_notes(seed):
    rng = random.Random(seed)
    return [(rng.random(), rng.random(), str(number)) for number in range(NOTED)]


NOTES = [] if args.fixed else [make_notes(seed) for seed in range(24)]


def with_notes(items):
    return *$collate(items), random.sample(NOTES, 16) if NOTES else []
"""


def _plan_objects(work: Work, choice: random.Random) -> Plan:
    """Batches carry long lists of tuples out of the workers, which the training thread has to unpickle."""
    notes = _NOTES.replace("$collate", work.collate_name or "default_collate")
    return Plan(
        loading={"num_workers": 2, **KEPT},
        pause_ms=choice.choice((10, 16)),
        data={
            "definitions": notes.replace("NOTED", str(choice.choice((6_000, 8_000)))),
            "collate": "with_notes",
            "unpack": work.unpack + ", notes",
        },
        steps=80,
    )


_SAMPLER = """
class Favour(Sampler):
    \"\"\"Draw samples by weights that sink with every draw.\"\"\"

    def __init__(self, count):
        self.count = count
        self.weights = [1.0 + number % 7 for number in range(SHELF)]

    def __len__(self):
        return self.count

    def __iter__(self):
        for _ in range(self.count):
            total = sum(weight**0.5 for weight in self.weights)
            at = random.random() * total
            for number, weight in enumerate(self.weights):
                at -= weight**0.5
                if at <= 0:
                    break
            self.weights[number] *= 0.99
            yield number


class FavourAtOnce(Favour):
    def __iter__(self):
        weights = torch.tensor(self.weights)
        yield from torch.multinomial(weights.sqrt(), self.count, replacement=True).tolist()


if args.fixed:
    Favour = FavourAtOnce
"""


def _plan_sampler(work: Work, choice: random.Random) -> Plan:
    shelf = 300_000 // work.batch
    return Plan(
        loading={"num_workers": 2, **KEPT},
        pause_ms=18,
        data={
            "definitions": _SAMPLER.replace("SHELF", str(shelf)),
            "sampler": ", sampler=Favour(STEPS // EPOCHS * BATCH)",
        },
    )


_CPU = frozenset({"workers_capped_by_cores", "workers_take_processors"})

PLANTS = (
    Plant(
        "no_workers",
        "samples are made by the training process",
        _plan_no_workers,
        feeds=("map", "inline", "iterable"),
        works=("image", "text", "audio", "tabular", "segmentation"),
        share=3,
    ),
    Plant(
        "no_workers",
        "the training process waits for a store",
        _plan_far_store,
        also=frozenset({"slow_read"}),
        feeds=("map", "inline", "iterable", "sharded", "pair"),
        without=("reinforcement",),
    ),
    Plant(
        "no_workers",
        "a generator makes batches between two steps",
        _plan_generator,
        also=frozenset({"watched_input", "slow_read", "slow_transform", "python_gap"}),
        feeds=("generator",),
    ),
    Plant(
        "too_few_workers",
        "one worker waits for a store, several would wait at the same time",
        _plan_too_few,
        also=frozenset({"slow_read"}),
        feeds=("map", "inline", "iterable", "sharded", "pair"),
        without=("reinforcement",),
        share=4,
    ),
    Plant(
        "slow_read",
        "reading a sample unpacks or parses far more than the sample",
        _swap("load", 2),
        also=_CPU | {"slow_read", "repeated_decode"},
        feeds=("map", "map", "iterable"),
        needs="load",
        without=("segmentation",),
        share=4,
    ),
    Plant(
        "slow_transform",
        "a transform loops over values in Python",
        _swap("transform", 2),
        also=_CPU | {"slow_transform"},
        feeds=("map", "pair"),
        needs="transform",
        share=4,
    ),
    Plant(
        "slow_transform",
        "a transform inside of __getitem__ or __iter__ loops over values in Python",
        _swap("transform", 2),
        also=_CPU | {"slow_transform", "slow_read"},
        feeds=("inline", "iterable", "sharded"),
        needs="transform",
    ),
    Plant(
        "slow_collate",
        "the batch is filled value by value",
        _swap("collate", 2),
        also=_CPU | {"slow_collate"},
        feeds=("map", "inline"),
        needs="collate",
        share=3,
    ),
    Plant(
        "workers_capped_by_cores",
        "four workers compute on two cores",
        _swap("transform", 4),
        also=_CPU | {"slow_transform", "oversubscribed_workers"},
        needs="transform",
        share=3,
    ),
    Plant(
        "workers_capped_by_cores",
        "three workers decode on two cores",
        _swap("load", 3),
        also=_CPU | {"slow_read", "repeated_decode", "oversubscribed_workers"},
        needs="load",
        without=("segmentation",),
    ),
    Plant(
        "small_files",
        "a sample lies in 32 files",
        _plan_small_files,
        also=_CPU | {"small_files", "slow_read"},
        works=("segmentation",),
        share=2,
    ),
    Plant(
        "repeated_decode",
        "twenty samples are decoded again and again",
        _plan_repeated,
        also=_CPU | {"repeated_decode", "slow_read", "too_few_workers"},
        works=("image", "audio"),
        feeds=("inline",),
        share=2,
    ),
    Plant(
        "in_memory_fetch",
        "thousands of rows in memory are fetched one by one",
        _plan_in_memory,
        works=("tabular",),
        feeds=("memory",),
        share=2,
    ),
    Plant(
        "ipc_bound",
        "workers send long lists of tuples, which are pickled and unpickled",
        _plan_objects,
        also=frozenset({"slow_collate"}),
        without=("reinforcement",),
        share=2,
    ),
    Plant(
        "slow_sampler",
        "each draw of the sampler sums all weights in Python",
        _plan_sampler,
        works=("image", "text", "audio", "segmentation"),
        share=2,
    ),
)
