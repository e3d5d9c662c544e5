"""Contrastive: two views of one trace are pulled together, all others pushed apart."""

from tests.zoo.draw.parts import Swap, Work

_MODEL = """
class Projector(nn.Module):
    def __init__(self, width=$width, depth=$depth):
        super().__init__()
        self.stem = nn.Conv1d(1, width, 9, stride=8)
        layers = [nn.Sequential(nn.Conv1d(width, width, 3, padding=1), nn.ReLU()) for _ in range(depth)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, 16)

    def forward(self, traces):
        $pause
        return F.normalize(self.head(self.body(self.stem(traces)).mean(2)), dim=1)
"""

_PREPARE = """
def prepare(where):
    rng = np.random.default_rng(19)
    traces = rng.standard_normal((TRACES, LENGTH)).cumsum(1).astype(np.float32)
    np.save(os.path.join(where, "traces.npy"), traces)
    for number, trace in enumerate(traces):
        with gzip.open(os.path.join(where, f"{number}.json.gz"), "wt", compresslevel=4) as file:
            json.dump({"trace": trace.round(4).tolist()}, file)
"""

_LOAD = """
@functools.cache
def open_traces(where):
    return np.load(os.path.join(where, "traces.npy"), mmap_mode="r")


def read_trace(where, index):
    return np.array(open_traces(where)[index % TRACES])
"""

_LOAD_JSON = """
def read_trace(where, index):
    with gzip.open(os.path.join(where, f"{index % TRACES}.json.gz"), "rt") as file:
        return np.array(json.load(file)["trace"], dtype=np.float32)
"""

_VIEWS = """
def two_views(trace):
    trace = torch.as_tensor(trace)[None]
    return trace * random.uniform(0.8, 1.2), trace.roll(random.randrange(40), 1)
"""

_VIEWS_WARP = """
def warp(trace, strength):
    at, out = 0.0, []
    for _ in range(len(trace)):
        low = min(int(at), len(trace) - 2)
        out.append(trace[low] + (trace[low + 1] - trace[low]) * (at - low))
        at = min(at + random.uniform(1 - strength, 1 + strength), len(trace) - 1.001)
    return out


def two_views(trace):
    values = trace.tolist()
    return torch.tensor([warp(values, 0.2)]), torch.tensor([warp(values, 0.3)])
"""

WORK = Work(
    key="contrastive",
    about=("Learn what traces of one hand have in common.", "Learn to recognise engines without labels."),
    data="Traces",
    batch=16,
    unpack="left, right",
    constants="TRACES = 60\nLENGTH = 3_000\nBATCH = $batch",
    prepare=_PREPARE,
    load=_LOAD,
    transform=_VIEWS,
    transform_name="two_views",
    item="$transform(raw)",
    model=_MODEL,
    players={"model": "Projector()", "optimizer": "$optimizer"},
    loss="output = model(left) @ model(right).T / 0.1\nloss = F.cross_entropy(output, torch.arange(len(output)))",
    calls=2,
    forward="model(left)",
    floats=("left", "right"),
    sizes={"light": (6, 1), "wide": (64, 3), "deep": (6, 16), "narrow": (8, 2)},
    swaps={
        "load": Swap(_LOAD_JSON, _LOAD),
        "transform": Swap(_VIEWS_WARP, _VIEWS),
    },
    slow_batch={"load": 85, "transform": 26},
    tensors="torch.randn(512, 1, LENGTH), torch.randn(512, 1, LENGTH)",
    feeds=("map", "map", "inline", "iterable", "generator"),
)
