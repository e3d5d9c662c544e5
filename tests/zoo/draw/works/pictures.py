"""Pictures in JPEG files, told apart by a small convolutional network."""

from tests.zoo.draw.parts import Swap, Work

_MODEL = """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(x + self.norm(self.conv(x)))


class Classifier(nn.Module):
    def __init__(self, width=$width, depth=$depth, kinds=12):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 5, stride=2, padding=2)
        self.body = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, kinds)

    def forward(self, x):
        $pause
        x = self.body(torch.relu(self.stem(x)))
        return self.head(x.mean((2, 3)))
"""

_PREPARE = """
def prepare(where, side=$side):
    rng = np.random.default_rng(3)
    for number in range(PHOTOS):
        rough = rng.integers(0, 255, (24, 24, 3), dtype=np.uint8)
        photo = Image.fromarray(rough).resize((side, side), Image.BICUBIC)
        photo.save(os.path.join(where, f"{number:03d}.jpg"), quality=90)
"""

_LOAD = """
def read_photo(where, index):
    return Image.open(os.path.join(where, f"{index % PHOTOS:03d}.jpg")).convert("RGB")
"""

_AUGMENT_LATE = """
def augment(photo):
    photo = photo.resize((256, 256), Image.BILINEAR).rotate(random.uniform(-15, 15), Image.BICUBIC)
    photo = ImageEnhance.Color(photo).enhance(random.uniform(0.8, 1.2))
    photo = photo.filter(ImageFilter.GaussianBlur(1.5)).resize((SIDE, SIDE), Image.BILINEAR)
    return torch.from_numpy(np.array(photo)).permute(2, 0, 1).float() / 255
"""

_AUGMENT = """
def augment(photo):
    photo = photo.resize((SIDE, SIDE), Image.BILINEAR)
    if random.random() < 0.5:
        photo = photo.transpose(Image.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(photo)).permute(2, 0, 1).float() / 255
"""

WORK = Work(
    key="image",
    about=("Tell kinds of leaves apart on photographs.", "Sort photographs of tiles by their pattern."),
    data="Photos",
    batch=16,
    unpack="photos, kinds",
    constants="PHOTOS = 48\nSIDE = 48\nBATCH = $batch",
    prepare=_PREPARE.replace("$side", "64"),
    load=_LOAD,
    transform=_AUGMENT,
    transform_name="augment",
    item="$transform(raw), index % 12",
    model=_MODEL,
    players={"model": "Classifier()", "optimizer": "$optimizer"},
    loss="output = model(photos)\nloss = F.cross_entropy(output, kinds)",
    forward="model(photos)",
    extra_unpack="more, _",
    extra="loss = loss + 0.05 * model(more).logsumexp(1).mean()",
    floats=("photos",),
    sizes={"light": (6, 1), "wide": (32, 3), "deep": (6, 14), "narrow": (8, 2)},
    swaps={
        "load": Swap(
            _PREPARE.replace("$side", "480") + _LOAD,
            _PREPARE.replace("$side", "64") + _LOAD,
        ),
        "transform": Swap(_AUGMENT_LATE, _AUGMENT),
    },
    slow_batch={"load": 44, "transform": 18},
    tensors="torch.rand(512, 3, SIDE, SIDE), torch.randint(0, 12, (512,))",
    feeds=("map", "map", "inline", "iterable", "pair", "generator"),
)
