"""Segmentation: a picture in, the outline of what is on it out."""

from tests.zoo.draw.parts import Swap, Work

_MODEL = """
class Painter(nn.Module):
    def __init__(self, width=$width, depth=$depth):
        super().__init__()
        self.down = nn.Conv2d(1, width, 4, stride=2, padding=1)
        layers = [nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU()) for _ in range(depth)]
        self.body = nn.Sequential(*layers)
        self.up = nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1)

    def forward(self, fields):
        $pause
        return self.up(self.body(self.down(fields)))
"""

_PREPARE = """
def prepare(where):
    rng = np.random.default_rng(17)
    for number in range(FIELDS):
        field = rng.integers(0, 255, (SIDE, SIDE), dtype=np.uint8)
        field[10 : 12 + number, 8:30] //= 2
        np.save(os.path.join(where, f"field{number}.npy"), field)
        for row in range(0, SIDE, 2):
            np.save(os.path.join(where, f"field{number}_{row}.npy"), field[row : row + 2])
"""

_LOAD = """
def read_field(where, index):
    return np.load(os.path.join(where, f"field{index % FIELDS}.npy"))
"""

_LOAD_STRIPS = """
def read_field(where, index):
    names = [f"field{index % FIELDS}_{row}.npy" for row in range(0, SIDE, 2)]
    return np.concatenate([np.load(os.path.join(where, name)) for name in names])
"""

_OUTLINE = """
def outline(field):
    marked = field < 128
    near = np.zeros(field.shape, dtype=np.float32)
    for axis in (0, 1):
        for shift in (1, -1):
            near += np.roll(marked, shift, axis) != marked
    return torch.from_numpy(field / np.float32(255))[None], torch.from_numpy(near.clip(0, 1))[None]
"""

_OUTLINE_LOOP = """
def outline(field):
    marked = (field < 128).tolist()
    near = [[0.0] * SIDE for _ in range(SIDE)]
    for y in range(SIDE):
        for x in range(SIDE):
            for dy, dx in ((0, 1), (0, -1), (1, 0), (-1, 0)):
                if marked[(y + dy) % SIDE][(x + dx) % SIDE] != marked[y][x]:
                    near[y][x] = 1.0
    return torch.from_numpy(field / np.float32(255))[None], torch.tensor(near)[None]
"""

WORK = Work(
    key="segmentation",
    about=("Outline fields on pictures from above.", "Outline cells under a microscope."),
    data="Fields",
    batch=10,
    unpack="fields, outlines",
    constants="FIELDS = 24\nSIDE = 64\nBATCH = $batch",
    prepare=_PREPARE,
    load=_LOAD,
    transform=_OUTLINE,
    transform_name="outline",
    item="$transform(raw)",
    model=_MODEL,
    players={"model": "Painter()", "optimizer": "$optimizer"},
    loss="output = model(fields)\nloss = F.binary_cross_entropy_with_logits(output, outlines.to(output.dtype))",
    forward="model(fields)",
    extra_unpack="more, _",
    extra="loss = loss + 0.01 * model(more).pow(2).mean()",
    floats=("fields",),
    sizes={"light": (4, 1), "wide": (32, 3), "deep": (4, 24), "narrow": (6, 2)},
    swaps={
        "load": Swap(_LOAD_STRIPS, _LOAD),
        "transform": Swap(_OUTLINE_LOOP, _OUTLINE),
    },
    slow_batch={"load": 60, "transform": 46},
    tensors="torch.rand(256, 1, SIDE, SIDE), (torch.rand(256, 1, SIDE, SIDE) > 0.5).float()",
    feeds=("map", "map", "inline", "iterable", "pair", "generator"),
)
