"""Nodes of a graph with sampled neighbours, each with a learnt vector."""

from tests.zoo.draw.parts import Swap, Work

_MODEL = """
class Linker(nn.Module):
    def __init__(self, width=$width, depth=$depth):
        super().__init__()
        self.nodes = nn.EmbeddingBag(NODES, width)
        layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
        self.body = nn.Sequential(*layers, nn.Linear(width, 6))

    def forward(self, neighbours):
        $pause
        return self.body(self.nodes(neighbours))
"""

_PREPARE = """
def prepare(where):
    rng = np.random.default_rng(23)
    edges = rng.integers(0, NODES, (NODES, 60))
    np.save(os.path.join(where, "edges.npy"), edges)
    with open(os.path.join(where, "edges.txt"), "w") as file:
        for node, ends in enumerate(edges):
            file.write(f"{node}: " + " ".join(map(str, ends)) + "\\n")
"""

_LOAD = """
@functools.cache
def open_edges(where):
    return np.load(os.path.join(where, "edges.npy"))


def read_neighbours(where, index):
    return open_edges(where)[open_edges(where)[index % NODES]].ravel()
"""

_LOAD_WALK = """
@functools.cache
def open_lines(where):
    with open(os.path.join(where, "edges.txt")) as file:
        return file.read().splitlines()


def read_neighbours(where, index):
    lines = open_lines(where)
    near = [int(end) for end in lines[index % NODES].partition(": ")[2].split()]
    return np.array([int(end) for node in near for end in lines[node].partition(": ")[2].split()])
"""

_SAMPLE = """
def sample(neighbours):
    return torch.as_tensor(neighbours[np.random.randint(0, len(neighbours), 32)])
"""

_SAMPLE_LOOP = """
def sample(neighbours):
    counts = {}
    for node in neighbours.tolist():
        counts[node] = counts.get(node, 0) + 1
    chosen = []
    while len(chosen) < 32:
        at = random.random() * sum(counts.values())
        for node, count in counts.items():
            at -= count
            if at <= 0:
                break
        chosen.append(node)
    return torch.tensor(chosen)
"""

_GATHER = """
def gather(items):
    return torch.stack([near for near, _ in items]), torch.tensor([kind for _, kind in items])
"""

WORK = Work(
    key="graph",
    about=("Guess the subject of a paper from what it cites.", "Guess the district of a stop from its neighbours."),
    data="Nodes",
    batch=32,
    unpack="neighbours, kinds",
    constants="NODES = 3_000\nBATCH = $batch",
    prepare=_PREPARE,
    load=_LOAD,
    transform=_SAMPLE,
    transform_name="sample",
    collate=_GATHER,
    collate_name="gather",
    item="$transform(raw), index % 6",
    model=_MODEL,
    players={"model": "Linker()", "optimizer": "$optimizer"},
    loss="output = model(neighbours)\nloss = F.cross_entropy(output, kinds)",
    forward="model(neighbours)",
    sizes={"light": (16, 1), "wide": (1000, 4), "deep": (24, 200), "narrow": (48, 2)},
    swaps={
        "load": Swap(_LOAD_WALK, _LOAD),
        "transform": Swap(_SAMPLE_LOOP, _SAMPLE),
    },
    slow_batch={"load": 160, "transform": 80},
    tensors="torch.randint(0, NODES, (2_000, 32)), torch.randint(0, 6, (2_000,))",
    feeds=("map", "map", "inline", "iterable", "sharded", "generator"),
)
