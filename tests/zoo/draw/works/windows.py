"""Stretches of measurements that an autoencoder learns to repeat."""

from tests.zoo.draw.parts import Swap, Work

_MODEL = """
class Repeater(nn.Module):
    def __init__(self, width=$width, depth=$depth):
        super().__init__()
        inner = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())]
        self.down = nn.Sequential(nn.Linear(SPAN, width), nn.Tanh(), *inner)
        self.up = nn.Linear(width, SPAN)

    def forward(self, spans):
        $pause
        return self.up(self.down(spans))
"""

_PREPARE = """
def prepare(where):
    rng = np.random.default_rng(13)
    for gauge in range(GAUGES):
        heights = np.cumsum(rng.standard_normal((SPANS, SPAN)), axis=1).astype(np.float32).round(2)
        np.savez_compressed(os.path.join(where, f"{gauge}.npz"), heights=heights)
        np.save(os.path.join(where, f"{gauge}.npy"), heights)
"""

_LOAD = """
@functools.cache
def open_gauge(where, gauge):
    return np.load(os.path.join(where, f"{gauge}.npy"), mmap_mode="r")


def read_span(where, index):
    return np.array(open_gauge(where, index % GAUGES)[index // GAUGES % SPANS])
"""

_LOAD_ALL = """
def read_span(where, index):
    with np.load(os.path.join(where, f"{index % GAUGES}.npz")) as gauge:
        return gauge["heights"][index // GAUGES % SPANS]
"""

_SMOOTH = """
def smooth(span):
    span = torch.as_tensor(span)
    return F.avg_pool1d(span[None, None], 5, 1, 2, count_include_pad=False)[0, 0]
"""

_SMOOTH_LOOP = """
def smooth(span):
    values = [float(value) for value in span]
    smoothed = []
    for at in range(len(values)):
        near = sorted(values[max(0, at - 12) : at + 13])
        smoothed.append(0.5 * near[len(near) // 2] + 0.5 * sum(near) / len(near))
    return torch.tensor(smoothed)
"""

_STACK = """
def stack(items):
    spans = torch.stack([span for span, _ in items])
    return spans - spans.mean(1, keepdim=True), torch.tensor([gauge for _, gauge in items])
"""

_STACK_LOOP = """
def stack(items):
    spans = torch.zeros(len(items), SPAN)
    for row, (span, _) in enumerate(items):
        level = sum(float(value) for value in span) / SPAN
        for column in range(0, SPAN, 2):
            spans[row, column : column + 2] = span[column : column + 2] - level
    return spans, torch.tensor([gauge for _, gauge in items])
"""

WORK = Work(
    key="autoencoder",
    about=("Learn what the tides usually look like.", "Find days on which a gauge was broken."),
    data="Spans",
    batch=24,
    unpack="spans, _",
    constants="GAUGES = 8\nSPANS = 120\nSPAN = 256\nBATCH = $batch",
    prepare=_PREPARE,
    load=_LOAD,
    transform=_SMOOTH,
    transform_name="smooth",
    collate=_STACK,
    collate_name="stack",
    item="$transform(raw), index % GAUGES",
    model=_MODEL,
    players={"model": "Repeater()", "optimizer": "$optimizer"},
    loss="output = model(spans)\nloss = F.mse_loss(output, spans)",
    forward="model(spans)",
    floats=("spans",),
    sizes={"light": (32, 1), "wide": (1600, 2), "deep": (24, 220), "narrow": (64, 2)},
    swaps={
        "load": Swap(_LOAD_ALL, _LOAD),
        "transform": Swap(_SMOOTH_LOOP, _SMOOTH),
        "collate": Swap(_STACK_LOOP, _STACK),
    },
    slow_batch={"load": 120, "transform": 260, "collate": 100},
    tensors="torch.randn(2_000, SPAN), torch.randint(0, 8, (2_000,))",
    feeds=("map", "map", "inline", "iterable", "sharded", "generator"),
)
