"""DDP with a backward that takes its time, one slow rank, and the model freed with main(), right behind the group."""

import time

import lesson
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 10**7

    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.sin(torch.arange(16 * 64, dtype=torch.float32) * (index + 1)).reshape(16, 64)


class SlowBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.012)
        return gradient


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x):
        x = SlowBack.apply(torch.relu(self.first(x)))
        time.sleep(0.042 if lesson.rank() == 1 else 0.012)
        return self.second(x)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    lesson.make_group()
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    lesson.begin()
    for step, batch in enumerate(torch.utils.data.DataLoader(Data(), batch_size=None), 1):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        if lesson.is_over(step, model, loss):
            break
    lesson.finish()
    lesson.leave_group()


main()
