"""DDP over gloo as tutorials write it: the model is freed with main(), right behind the group."""

import gc
import os

import lesson
import torch
from torch.nn.parallel import DistributedDataParallel


def main():
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
    if os.environ.get("ENDINGS_WAY") == "model first":
        del model, optimizer, loss
        gc.collect()
    lesson.leave_group()


main()
