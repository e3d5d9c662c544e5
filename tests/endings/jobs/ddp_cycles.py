"""Ten process groups one after the other: each is trained with, destroyed, and freed with its model."""

import os
import time

import lesson
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

GROUPS = 10
STEPS_APART = 5


class SlowBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.004)
        return gradient


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x):
        x = SlowBack.apply(torch.relu(self.first(x)))
        time.sleep(0.02 if lesson.rank() == 1 else 0.004)
        return self.second(x)


def train(number, store, steps):
    dist.init_process_group(
        "gloo", store=dist.PrefixStore(str(number), store), rank=lesson.rank(), world_size=lesson.world()
    )
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step in steps:
        optimizer.zero_grad()
        loss = model(torch.sin(torch.arange(16 * 64, dtype=torch.float32) * step).reshape(16, 64)).square().mean()
        loss.backward()
        optimizer.step()
        if number == GROUPS and lesson.is_over(step, model, loss):
            break
    if number == GROUPS:
        lesson.finish()
    dist.destroy_process_group()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    lesson.begin()
    for number in range(1, GROUPS):
        train(number, store, range(1, STEPS_APART + 1))
    train(GROUPS, store, range(1, 10**7))


main()
