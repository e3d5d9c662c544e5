"""Pictures of digits as PNG files: scikit-learn's handwritten ones, or drawn ones where it is not installed."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator
from pathlib import Path

from PIL import Image, ImageDraw

SIDE = 288
"""Stored larger than the model needs, as photographs are."""


def write_pictures(folder: Path, count: int) -> list[Path]:
    """Write that many pictures, named `<number>_<digit>.png`, and return them."""
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
    """Return the digit that a file's name says."""
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
