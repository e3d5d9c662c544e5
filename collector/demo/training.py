"""The demo's training: an ordinary script with two lines of Stepscope.

Its bottleneck is a common one: pictures are augmented at full size before they are made small, so two workers cannot
keep up with a small model.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset

from collector import Profiler
from collector.format.schema.removal import scratch_folder
from collector.format.schema.wording import format_number_of, format_percent

SIDE = 288
"""The side of a stored picture in pixels: larger than the model needs, as with photographs."""


def write_pictures(folder: Path, count: int) -> list[Path]:
    """Write up to `count` pictures of digits, named `<number>_<digit>.png`, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    has_digits = importlib.util.find_spec("sklearn") is not None
    source = _read_handwritten() if has_digits else _draw_digits()
    paths = []
    for number, (picture, digit) in zip(range(count), source, strict=False):
        path = folder / f"{number:05d}_{digit}.png"
        picture.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(path, compress_level=1)
        paths.append(path)
    return paths


def read_digit(path: Path) -> int:
    """Return the digit in a file's name."""
    return int(path.stem.rpartition("_")[2])


def _read_handwritten() -> Iterator[tuple[Image.Image, int]]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    for pixels, digit in zip(digits.images, digits.target, strict=True):
        yield Image.fromarray((pixels * 15).astype("uint8")), int(digit)


def _draw_digits() -> Iterator[tuple[Image.Image, int]]:
    chance = random.Random(0)
    while True:
        digit = chance.randrange(10)
        picture = Image.new("L", (16, 16))
        ImageDraw.Draw(picture).text((chance.randint(2, 8), chance.randint(0, 4)), str(digit), fill=240)
        yield picture, digit


BATCH = 32
TRAIN_PICTURES = 640
VALIDATION_PICTURES = 96
MODEL_SIDE = 32

Sample = tuple[torch.Tensor, int]


class Compose:
    """A transform that applies several transforms, one after the other."""

    def __init__(self, *transforms: Callable[..., object]) -> None:
        self.transforms = transforms

    def __call__(self, picture: object) -> object:
        for transform in self.transforms:
            picture = transform(picture)
        return picture


class Rotate:
    """A transform that turns a picture by a random angle."""

    def __call__(self, picture: Image.Image) -> Image.Image:
        return picture.rotate(random.uniform(-15, 15), Image.Resampling.BICUBIC)


class Blur:
    """A transform that blurs a picture by a random radius."""

    def __call__(self, picture: Image.Image) -> Image.Image:
        return picture.filter(ImageFilter.GaussianBlur(random.uniform(0.5, 2.5)))


class Shrink:
    def __call__(self, picture: Image.Image) -> Image.Image:
        return picture.resize((MODEL_SIDE, MODEL_SIDE), Image.Resampling.BILINEAR)


class ToTensor:
    """A transform from a grey picture to a tensor in 0..1, of shape (1, height, width)."""

    def __call__(self, picture: Image.Image) -> torch.Tensor:
        pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
        return pixels.view(1, picture.height, picture.width).float() / 255


class DigitFiles(Dataset[Sample]):  # type: ignore[misc]
    """A data set of picture files whose names end in their digit."""

    def __init__(self, paths: Sequence[Path], transform: Callable[..., torch.Tensor]) -> None:
        self.paths = list(paths)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Sample:
        path = self.paths[index]
        with Image.open(path) as file:
            picture = file.convert("L")
        return self.transform(picture), read_digit(path)


class DigitNet(nn.Module):  # type: ignore[misc]
    """A small model that tells the digit of a picture: two convolutions and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.classifier = nn.Linear(32 * (MODEL_SIDE // 4) ** 2, 10)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(pictures).flatten(1))


def record_training(output_path: Path, steps: int) -> None:
    with scratch_folder("stepscope-demo-") as folder:
        paths = write_pictures(folder, TRAIN_PICTURES + VALIDATION_PICTURES)
        print(f"Training on {len(paths)} pictures for {format_number_of(steps, 'step')} with 2 workers", flush=True)
        profiler = Profiler(output_path)
        accuracy = train(paths, steps)
        profiler.analyse()
    print(f"Trained to {format_percent(accuracy)} on pictures it had not seen. The run is in {output_path}")


def train(paths: Sequence[Path], steps: int) -> float:
    """Train for `steps` steps, validate after each pass over the pictures, and return the last accuracy, 0 to 1."""
    torch.manual_seed(0)
    augmented = Compose(Rotate(), Blur(), Shrink(), ToTensor())
    plain = Compose(Shrink(), ToTensor())
    train_files = DigitFiles(paths[VALIDATION_PICTURES:], augmented)
    validation_files = DigitFiles(paths[:VALIDATION_PICTURES], plain)
    train_loader = DataLoader(train_files, BATCH, shuffle=True, num_workers=2, persistent_workers=True, drop_last=True)
    validation_loader = DataLoader(validation_files, BATCH)
    model = DigitNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    accuracy, passed = 0.0, 0
    bar = show_progress(steps)
    while passed < steps:
        model.train()
        for pictures, digits in train_loader:
            loss = nn.functional.cross_entropy(model(pictures), digits)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            passed += 1
            next(bar)
            if passed == steps:
                break
        accuracy = validate(model, validation_loader)
    return accuracy


def validate(model: nn.Module, loader: DataLoader[Sample]) -> float:
    """Return the fraction of pictures that the model classifies correctly."""
    model.eval()
    right = total = 0
    with torch.no_grad():
        for pictures, digits in loader:
            right += int((model(pictures).argmax(1) == digits).sum())
            total += len(digits)
    return right / total


def show_progress(steps: int, width: int = 40) -> Iterator[None]:
    """Draw a progress bar on a terminal, which advances with each `next`. Draw nothing if stdout is no terminal."""
    on_terminal = sys.stdout.isatty()
    for done in range(1, steps + 1):
        if on_terminal:
            filled = width * done // steps
            end = "\n" if done == steps else ""
            print(f"\r[{'#' * filled}{'.' * (width - filled)}] step {done} of {steps}", end=end, flush=True)
        yield
