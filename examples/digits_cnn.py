"""Train a small CNN on handwritten digits that are read from PNG files by worker processes.

    python examples/digits_cnn.py --output runs/digits
    stepscope serve runs

Needs torch, pillow and scikit-learn.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset

from stepscope import Profiler

SIDE = 32


def write_pictures(folder: Path) -> list[Path]:
    """Return the files of scikit-learn's digits, `<number>_<digit>.png`. Missing files are written."""
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    paths = [folder / f"{number:04d}_{digit}.png" for number, digit in enumerate(digits.target)]
    for path, pixels in zip(paths, digits.images, strict=True):
        if not path.exists():
            Image.fromarray((pixels * 15).astype("uint8")).resize((64, 64), Image.Resampling.BICUBIC).save(path)
    return paths


class Rotate:
    def __call__(self, picture: Image.Image) -> Image.Image:
        return picture.rotate(random.uniform(-12, 12), Image.Resampling.BILINEAR)


class Resize:
    def __call__(self, picture: Image.Image) -> Image.Image:
        return picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR)


class ToTensor:
    def __call__(self, picture: Image.Image) -> torch.Tensor:
        pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
        return pixels.view(1, picture.height, picture.width).float() / 255


class DigitFiles(Dataset):
    """Pictures from files after all transforms, each with the digit in its file name."""

    def __init__(self, paths: list[Path], transforms: list) -> None:
        self.paths = paths
        self.transforms = transforms

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path = self.paths[index]
        with Image.open(path) as file:
            picture = file.convert("L")
        for transform in self.transforms:
            picture = transform(picture)
        return picture, int(path.stem.rpartition("_")[2])


class SmallCnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.classifier = nn.Linear(32 * 8 * 8, 10)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(pictures).flatten(1))


def measure_accuracy(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    with torch.no_grad():
        right = sum(int((model(pictures).argmax(1) == digits).sum()) for pictures, digits in loader)
    model.train()
    return right / len(loader.dataset)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/digits"), help="folder for the run")
    parser.add_argument("--pictures", type=Path, default=Path("digits"), help="folder for the PNG files")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    return parser.parse_args()


def main() -> None:
    arguments = read_arguments()
    torch.manual_seed(0)
    paths = write_pictures(arguments.pictures)
    options = {"num_workers": arguments.workers, "persistent_workers": arguments.workers > 0}
    train_files = DigitFiles(paths[300:], [Rotate(), Resize(), ToTensor()])
    train_loader = DataLoader(train_files, arguments.batch_size, shuffle=True, **options)
    test_loader = DataLoader(DigitFiles(paths[:300], [Resize(), ToTensor()]), 100)
    model = SmallCnn()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    profiler = Profiler(arguments.output)
    for epoch in range(1, arguments.epochs + 1):
        for pictures, digits in train_loader:
            loss = nn.functional.cross_entropy(model(pictures), digits)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {measure_accuracy(model, test_loader):.1%} right")
    profiler.analyse()


if __name__ == "__main__":
    main()
