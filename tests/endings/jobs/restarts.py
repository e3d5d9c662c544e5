"""DDP whose first attempt fails at its second step, on rank 1; torchrun starts another."""

import os

import lesson
import torch
from torch.nn.parallel import DistributedDataParallel


def main():
    is_first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    lesson.make_group()
    model = DistributedDataParallel(lesson.make_model())
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    lesson.begin()
    loader = torch.utils.data.DataLoader(lesson.make_samples(), batch_size=8)
    for step, batch in enumerate(loader, 1):
        loss = lesson.take_step(model, optimizer, batch)
        if is_first and step == 2 and lesson.rank() == 1:
            raise ArithmeticError("the first attempt")
        if not is_first and lesson.is_over(step, model, loss):
            break
    lesson.finish()
    lesson.leave_group()


main()
