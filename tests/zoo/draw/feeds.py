"""How batches come to the loop: each way is a text of definitions and the lines that make `loader` in `main`."""

from __future__ import annotations

from dataclasses import dataclass

from tests.zoo.draw.parts import Plan, Work


@dataclass(frozen=True)
class Feed:
    """`unpack` is what the loop takes from `loader`; `uses_tensors` says that no files are read for the samples."""

    definitions: str
    lines: str
    unpack: str
    takes_options: bool = True
    uses_tensors: bool = False


_MAP = """
class $data(Dataset):
    def __init__(self, where, length, $field):
        self.where, self.length, self.$field = where, length, $field

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        $reach
        raw = $load(self.where, index)
        return $item
"""

_INLINE = _MAP.replace(", self.$field", "").replace(", $field", "")

_ITERABLE = """
class $data(IterableDataset):
    def __init__(self, where, length):
        self.where, self.length = where, length

    def __iter__(self):
        info = get_worker_info()
        first, stride = (info.id, info.num_workers) if info else (0, 1)
        for index in range(first, self.length, stride):
            $reach
            raw = $load(self.where, index)
            yield $item
"""

_SHARDED = """
SHARDS = 16


def write_shards(where):
    for shard in range(SHARDS):
        with open(os.path.join(where, f"shard{shard:02d}.pkl"), "wb") as file:
            pickle.dump([$load(where, number) for number in range(shard, 64 * SHARDS, SHARDS)], file)


class $data(IterableDataset):
    def __init__(self, where, length):
        self.where, self.length = where, length

    def __iter__(self):
        info = get_worker_info()
        first, stride = (info.id, info.num_workers) if info else (0, 1)
        left = -(-self.length // stride)
        for shard in itertools.cycle(range(first, SHARDS, stride)):
            with open(os.path.join(self.where, f"shard{shard:02d}.pkl"), "rb") as file:
                records = pickle.load(file)
            for index, raw in enumerate(records):
                if not left:
                    return
                left -= 1
                $reach
                yield $item
"""

_GENERATOR = """
def batches(where, count):
    for number in range(count):
        items = []
        for index in range(number * BATCH, number * BATCH + BATCH):
            $reach
            raw = $load(where, index)
            items.append(($item))
        yield $collate(items)
"""

_AHEAD = """

class Ahead(IterableDataset):
    def __init__(self, where, count):
        self.where, self.count = where, count

    def __iter__(self):
        return batches(self.where, self.count)
"""

_BUCKETS = """
class Buckets(Sampler):
    \"\"\"Batches of sentences of similar length.\"\"\"

    def __init__(self, lengths, count):
        self.groups = [group.tolist() for group in torch.as_tensor(lengths).argsort().split(BATCH)]
        self.count = count

    def __len__(self):
        return self.count

    def __iter__(self):
        for _ in range(self.count):
            yield random.choice(self.groups)
"""

_SLICES = """
def batches(parts, count):
    for _ in range(count):
        chosen = torch.randint(0, len(parts[0]), (BATCH,))
        yield tuple(part[chosen] for part in parts)
"""


def build_feed(kind: str, work: Work, plan: Plan) -> Feed:
    """Return the texts of a way to feed a loop, with the tokens that `fill_feed` replaces."""
    if kind == "world":
        return Feed("", "", "_", takes_options=False)
    collate = f", collate_fn={work.collate_name}" if work.collate else ""
    batched = f"DataLoader(data, BATCH{collate}$sampler, **loader_options())"
    whole = f"({work.tensors})"
    if kind == "pair":
        lines = (
            f"labelled = TensorDataset{whole}\n"
            "drawn = RandomSampler(labelled, replacement=True, num_samples=STEPS * BATCH)\n"
            f"more_data = {work.data}(where, STEPS * BATCH, {work.transform_name})\n"
            f"more = DataLoader(more_data, BATCH{collate}, **loader_options())\n"
            "loader = zip(DataLoader(labelled, BATCH, sampler=drawn), more)"
        )
        return Feed(_MAP, lines, f"({work.unpack}), ({work.extra_unpack})")
    if kind == "generator":
        made = "batches(where, STEPS)"
        if plan.loading_fixed is None:
            return Feed(_GENERATOR, f"loader = {made}", work.unpack, takes_options=False)
        ahead = "DataLoader(Ahead(where, STEPS), batch_size=None, num_workers=1)"
        lines = f"loader = {made}\nif args.fixed:\n    loader = {ahead}"
        return Feed(_GENERATOR + _AHEAD, lines, work.unpack, takes_options=False)
    if kind == "slices":
        lines = f"parts = {whole}\nloader = batches(parts, STEPS)"
        return Feed(_SLICES, lines, work.unpack, takes_options=False, uses_tensors=True)
    if kind == "memory":
        lines = (
            f"data = TensorDataset{whole}\n"
            "drawn = RandomSampler(data, replacement=True, num_samples=STEPS * BATCH)\n"
            "loader = DataLoader(data, BATCH, sampler=drawn)"
        )
        return Feed("", lines, work.unpack, takes_options=False, uses_tensors=True)
    if kind == "buckets":
        lines = (
            f"data = {work.data}(where, LINES, {work.transform_name})\n"
            'lengths = (np.load(os.path.join(where, "tokens.npy")) > 0).sum(1)\n'
            f"loader = DataLoader(data, batch_sampler=Buckets(lengths, STEPS){collate}, **loader_options())"
        )
        return Feed(_MAP + _BUCKETS, lines, work.unpack)
    definitions = {"map": _MAP, "inline": _INLINE, "iterable": _ITERABLE, "sharded": _SHARDED}[kind]
    extra = f", {work.transform_name}" if kind == "map" else ""
    start = "write_shards(where)\n" if kind == "sharded" else ""
    lines = f"{start}data = {work.data}(where, STEPS // EPOCHS * BATCH{extra})\noptions = loader_options()\n"
    lines += f"loader = {batched.replace('loader_options()', 'options')}"
    return Feed(definitions, lines, work.unpack)


def fill_feed(text: str, kind: str, work: Work, reach: str) -> str:
    """Put the names of a kind of work into a text of `build_feed`."""
    name = work.transform_name
    called = f"self.{name}" if kind in ("map", "pair", "buckets") else name
    load = work.load.rpartition("def ")[2].partition("(")[0]
    for token, value in (
        ("$item", work.item.replace("$transform", called)),
        ("$data", work.data),
        ("$field", name),
        ("$load", load),
        ("$collate", work.collate_name or "default_collate"),
    ):
        text = text.replace(token, value)
    kept = [line for line in text.split("\n") if reach or line.strip() != "$reach"]
    return "\n".join(line if "$reach" not in line else _indent(reach, len(line) - len(line.lstrip())) for line in kept)


def _indent(text: str, by: int) -> str:
    return "\n".join(" " * by + line if line else line for line in text.split("\n"))
