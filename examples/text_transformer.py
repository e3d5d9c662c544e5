"""Train a small transformer to continue sentences that the script makes up, character by character.

    python examples/text_transformer.py --output runs/text

Needs torch only.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from stepscope import Profiler

CONTEXT = 64
_WHO = ("the cat", "a sailor", "the old clock", "my neighbour", "the river", "a small bird")
_DOES = ("watches", "carries", "remembers", "follows", "forgets", "repairs")
_WHAT = ("the moon", "an empty boat", "the morning", "a wooden door", "the long road", "a paper kite")
_WHEN = ("at dawn", "in winter", "without a word", "every year", "by the harbour", "once again")


def write_text(sentences: int) -> str:
    """Return `sentences` made-up sentences, the same every time."""
    chance = random.Random(0)
    parts = (_WHO, _DOES, _WHAT, _WHEN)
    return ". ".join(" ".join(chance.choice(part) for part in parts) for _ in range(sentences)) + "."


class Windows(Dataset):
    """Every stretch of CONTEXT characters, with the stretch that begins one character later."""

    def __init__(self, text: str) -> None:
        self.letters = sorted(set(text))
        number = {letter: index for index, letter in enumerate(self.letters)}
        self.codes = torch.tensor([number[letter] for letter in text])

    def __len__(self) -> int:
        return len(self.codes) - CONTEXT - 1

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.codes[index : index + CONTEXT], self.codes[index + 1 : index + CONTEXT + 1]


class TextModel(nn.Module):
    def __init__(self, letters: int, width: int = 96, layers: int = 2) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.places = nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, letters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        hidden = self.letters(codes) + self.places(torch.arange(codes.shape[1]))
        return self.head(self.layers(hidden, mask=self.mask, is_causal=True))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/text"), help="folder for the run")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=150)
    return parser.parse_args()


def main() -> None:
    arguments = read_arguments()
    torch.manual_seed(0)
    windows = Windows(write_text(4000))
    loader = DataLoader(windows, 32, shuffle=True, drop_last=True, num_workers=arguments.workers)
    model = TextModel(len(windows.letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.steps)

    profiler = Profiler(arguments.output)
    for step, (codes, following) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(codes).flatten(0, 1), following.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.2f}")
        if step == arguments.steps:
            break
    profiler.analyse()


if __name__ == "__main__":
    main()
