"""A training in a process that multiprocessing spawns."""

import sys

import lesson
import torch


def train():
    model = lesson.make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    lesson.begin()
    loader = torch.utils.data.DataLoader(lesson.make_samples(), batch_size=8)
    for step, batch in enumerate(loader, 1):
        loss = lesson.take_step(model, optimizer, batch)
        if lesson.is_over(step, model, loss):
            break
    lesson.finish()


if __name__ == "__main__":
    process = torch.multiprocessing.get_context("spawn").Process(target=train)
    process.start()
    process.join()
    lesson.say(f"the child ended with {process.exitcode}")
    sys.exit(process.exitcode if process.exitcode >= 0 else 1)
