"""Rows of a table: numbers and dates, as tabular data come."""

from tests.zoo.draw.parts import Swap, Work

_MODEL = """
class Estimate(nn.Module):
    def __init__(self, width=$width, depth=$depth):
        super().__init__()
        layers = [nn.Linear(COLUMNS, width), nn.ReLU()]
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, rows):
        $pause
        return self.body(rows)
"""

_PREPARE = """
def prepare(where):
    rng = np.random.default_rng(11)
    table = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    np.save(os.path.join(where, "table.npy"), table)
    for part in range(PARTS):
        with open(os.path.join(where, f"part{part}.csv"), "w") as file:
            for number, row in enumerate(table[part::PARTS]):
                day = datetime.date(2020, 1, 1) + datetime.timedelta(days=number % 900)
                file.write(f"{day.isoformat()}," + ",".join(f"{value:.5f}" for value in row) + "\\n")
"""

_LOAD = """
@functools.cache
def open_table(where):
    return np.load(os.path.join(where, "table.npy"), mmap_mode="r")


def read_row(where, index):
    return np.array(open_table(where)[index % ROWS])
"""

_LOAD_CSV = """
def read_row(where, index):
    with open(os.path.join(where, f"part{index % PARTS}.csv")) as file:
        rows = [row[1:] for row in csv.reader(file)]
    return np.array([float(value) for value in rows[index // PARTS % len(rows)]], dtype=np.float32)
"""

_SCALE = """
def scale(row):
    return torch.as_tensor(row).clamp(-3, 3)
"""

_SCALE_LOOP = """
def scale(row):
    values = []
    for number, value in enumerate(row):
        day = datetime.datetime.strptime(f"2021-{1 + number % 12:02d}-{1 + number % 28:02d}", "%Y-%m-%d")
        season = 1 + 1e-6 * math.cos(day.timetuple().tm_yday / 58)
        values.append(min(max(float(value) * season, -3.0), 3.0))
    return torch.tensor(values)
"""

WORK = Work(
    key="tabular",
    about=("Estimate the price of a flat.", "Estimate how long a repair takes."),
    data="Rows",
    batch=64,
    unpack="rows, prices",
    constants="ROWS = 6_000\nCOLUMNS = 32\nPARTS = 20\nBATCH = $batch",
    prepare=_PREPARE,
    load=_LOAD,
    transform=_SCALE,
    transform_name="scale",
    item="$transform(raw), float(raw[0])",
    model=_MODEL,
    players={"model": "Estimate()", "optimizer": "$optimizer"},
    loss="output = model(rows)\nloss = F.mse_loss(output[:, 0], prices.to(output.dtype))",
    forward="model(rows)",
    extra_unpack="more, _",
    extra="loss = loss + 0.01 * model(more).pow(2).mean()",
    floats=("rows",),
    sizes={"light": (32, 1), "wide": (1400, 3), "deep": (24, 220), "narrow": (64, 2)},
    swaps={
        "load": Swap(_LOAD_CSV, _LOAD),
        "transform": Swap(_SCALE_LOOP, _SCALE),
    },
    slow_batch={"load": 130, "transform": 420},
    tensors="torch.randn(30_000, COLUMNS), torch.randn(30_000)",
    feeds=("map", "map", "inline", "iterable", "sharded", "pair", "generator"),
)
