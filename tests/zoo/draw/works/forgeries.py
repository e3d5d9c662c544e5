"""A generator and a critic, each with an optimizer of its own."""

from tests.zoo.draw.parts import Swap, Work

_MODEL = """
def stack(inputs, outputs, width=$width, depth=$depth):
    layers = [nn.Linear(inputs, width), nn.LeakyReLU(0.2)]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


class Forger(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = stack(NOISE, SIDE * SIDE)

    def forward(self, noise):
        $pause
        return torch.tanh(self.body(noise))
"""

_PREPARE = """
def prepare(where):
    rng = np.random.default_rng(29)
    stamps = rng.integers(0, 255, (STAMPS, SIDE, SIDE), dtype=np.uint8)
    np.save(os.path.join(where, "stamps.npy"), stamps)
    for number, stamp in enumerate(stamps):
        picture = Image.fromarray(stamp).resize((256, 256), Image.BICUBIC)
        picture.save(os.path.join(where, f"{number}.png"), compress_level=1)
"""

_LOAD = """
@functools.cache
def open_stamps(where):
    return np.load(os.path.join(where, "stamps.npy"))


def read_stamp(where, index):
    return open_stamps(where)[index % STAMPS]
"""

_LOAD_PNG = """
def read_stamp(where, index):
    stamp = Image.open(os.path.join(where, f"{index % STAMPS}.png")).convert("L")
    return np.array(stamp.resize((SIDE, SIDE), Image.LANCZOS))
"""

_FLATTEN = """
def flatten(stamp):
    return torch.from_numpy(stamp.astype(np.float32)).flatten() / 127.5 - 1
"""

_FLATTEN_LOOP = """
def flatten(stamp):
    values = []
    for row in stamp.tolist():
        for value in row:
            ink = math.exp(math.log1p(value)) - 1
            values.append(ink / 127.5 - 1 + 0.01 * (random.random() - 0.5))
    return torch.tensor(values)
"""

_STEP = """noise = torch.randn(len(stamps), NOISE)
output = model(noise)
told_forged, told_real = critic(output.detach()), critic(stamps.to(output.dtype))
critic_loss = F.softplus(told_forged).mean() + F.softplus(-told_real).mean()
critic_optimizer.zero_grad()
critic_loss.backward()
critic_optimizer.step()
loss = F.softplus(-critic(output)).mean()
optimizer.zero_grad()
loss.backward()
optimizer.step()"""

WORK = Work(
    key="gan",
    about=("Forge stamps that a critic takes for real.", "Draw new stamps after old ones."),
    data="Stamps",
    batch=20,
    unpack="stamps, _",
    constants="STAMPS = 40\nSIDE = 28\nNOISE = 32\nBATCH = $batch",
    prepare=_PREPARE,
    load=_LOAD,
    transform=_FLATTEN,
    transform_name="flatten",
    item="$transform(raw), index % STAMPS",
    model=_MODEL,
    players={
        "model": "Forger()",
        "optimizer": "$optimizer",
        "critic": "stack(SIDE * SIDE, 1)",
        "critic_optimizer": "torch.optim.Adam(critic.parameters(), 2e-4, fused=True)",
    },
    loss="",
    forward="model(torch.randn(len(stamps), NOISE))",
    step=_STEP,
    floats=("stamps",),
    sizes={"light": (32, 1), "wide": (900, 2), "deep": (24, 90), "narrow": (64, 1)},
    swaps={
        "load": Swap(_LOAD_PNG, _LOAD),
        "transform": Swap(_FLATTEN_LOOP, _FLATTEN),
    },
    slow_batch={"load": 80, "transform": 300},
    tensors="torch.rand(2_000, SIDE * SIDE), torch.randint(0, 80, (2_000,))",
    feeds=("map", "map", "iterable"),
)
