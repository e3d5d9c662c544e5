"""A training that forks: the child trains on, the parent waits for it and ends with its code."""

import os
import sys

import lesson
import torch


def train(model, first, steps):
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = torch.utils.data.DataLoader(lesson.make_samples(), batch_size=8)
    for step, batch in enumerate(loader, first):
        loss = lesson.take_step(model, optimizer, batch)
        if lesson.is_over(step, model, loss) or step == steps:
            break


def main():
    model = lesson.make_model()
    lesson.begin()
    half = lesson.STEPS // 2
    train(model, 1, half)
    child = os.fork()
    if child == 0:
        train(model, half + 1, 10**9)
        sys.exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    lesson.say(f"the child ended with {code}")
    lesson.finish()
    sys.exit(code if code >= 0 else 1)


main()
