"""Train a GAN that draws digits: two models, two optimizers, one batch.

    python examples/gan.py --output runs/gan

Needs torch and scikit-learn.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from stepscope import Profiler

NOISE = 32
PIXELS = 64


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/gan"), help="folder for the run")
    parser.add_argument("--epochs", type=int, default=5)
    return parser.parse_args()


def main() -> None:
    arguments = read_arguments()
    torch.manual_seed(0)
    pictures = torch.tensor(load_digits().data / 8 - 1, dtype=torch.float32)
    loader = DataLoader(TensorDataset(pictures), 64, shuffle=True, drop_last=True)
    artist = nn.Sequential(nn.Linear(NOISE, 128), nn.ReLU(), nn.Linear(128, PIXELS), nn.Tanh())
    critic = nn.Sequential(nn.Linear(PIXELS, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
    artist_optimizer = torch.optim.Adam(artist.parameters(), lr=1e-3, betas=(0.5, 0.999))
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.999))
    judge = nn.functional.binary_cross_entropy_with_logits
    real_label, fake_label = torch.ones(64, 1), torch.zeros(64, 1)

    profiler = Profiler(arguments.output)
    for epoch in range(1, arguments.epochs + 1):
        for (real,) in loader:
            fake = artist(torch.randn(64, NOISE))
            critic_loss = judge(critic(real), real_label) + judge(critic(fake.detach()), fake_label)
            critic_optimizer.zero_grad()
            critic_loss.backward()
            critic_optimizer.step()

            artist_loss = judge(critic(fake), real_label)
            artist_optimizer.zero_grad()
            artist_loss.backward()
            artist_optimizer.step()
        print(f"epoch {epoch}: critic {critic_loss.item():.2f}, artist {artist_loss.item():.2f}")
    profiler.analyse()


if __name__ == "__main__":
    main()
