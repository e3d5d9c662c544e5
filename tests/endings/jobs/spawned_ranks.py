"""DDP in processes that torch.multiprocessing.spawn starts."""

import os
import socket

import lesson
import torch
from torch.nn.parallel import DistributedDataParallel


def train(rank, world, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    lesson.make_group()
    model = DistributedDataParallel(lesson.make_model())
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    lesson.begin()
    loader = torch.utils.data.DataLoader(lesson.make_samples(), batch_size=8)
    for step, batch in enumerate(loader, 1):
        loss = lesson.take_step(model, optimizer, batch)
        if lesson.is_over(step, model, loss):
            break
    lesson.finish()
    lesson.leave_group()


def find_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    ranks = int(os.environ.get("ENDINGS_RANKS", "2"))
    torch.multiprocessing.spawn(train, args=(ranks, find_port()), nprocs=ranks)
