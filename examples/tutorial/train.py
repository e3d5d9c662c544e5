"""Teach a small network five kinds of leaves. It learns, and it is slow: the tutorial finds out why."""

import random
import sys
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

from stepscope import Profiler

torch.manual_seed(0)
torch.set_num_threads(1)  # a small network: more would wait for each other
torch.autograd.set_detect_anomaly(True)


def draw_leaves(folder, count=320):
    for number in range(0 if folder.exists() else count):
        folder.mkdir(exist_ok=True)
        chance, kind = random.Random(number), number % 5
        picture = Image.effect_noise((640, 480), 40).convert("RGB")
        x, y = chance.randrange(200), chance.randrange(150)
        ImageDraw.Draw(picture).ellipse((x, y, x + 120 + 60 * kind, y + 300), fill=(30, 90 + 30 * kind, 40))
        picture.save(folder / f"{number:04d}_{kind}.png", compress_level=1)
    return folder


class Leaves(Dataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.png"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        picture = Image.open(self.paths[index]).convert("RGB").resize((192, 192))
        picture = picture.rotate(random.uniform(-20, 20), Image.Resampling.BICUBIC).resize((64, 64))
        pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
        return pixels.view(64, 64, 3).permute(2, 0, 1) / 255, int(self.paths[index].stem[-1])


def push_apart(features, kinds):
    total = torch.zeros(())
    for i in range(len(kinds)):
        for j in range(i):
            distance = (features[i] - features[j]).square().mean()
            total = total + (distance if kinds[i] == kinds[j] else (1 - distance).clamp(min=0))
    return total / len(kinds) ** 2


def train(out, steps):
    loader = DataLoader(Leaves(draw_leaves(out / "leaves")), batch_size=16, shuffle=True)
    body = nn.Sequential(nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 5, 2), nn.ReLU(), nn.Flatten())
    body.append(nn.Linear(32 * 13 * 13, 128))
    head = nn.Linear(128, 5)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], 1e-3)
    profiler = Profiler(out / "run")
    for _ in range(steps // len(loader)):
        for pictures, kinds in loader:
            features = body(pictures)
            loss = nn.functional.cross_entropy(head(features.relu()), kinds) + push_apart(features, kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            torch.save([body.state_dict(), head.state_dict(), optimizer.state_dict()], out / "last.pt")
    profiler.analyse()


if __name__ == "__main__":
    train(Path(sys.argv[1]), int(sys.argv[2]))
