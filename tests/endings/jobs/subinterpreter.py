"""A training, and behind it an interpreter of its own, in which a script begins what it begins in any other."""

import os

import lesson
import torch

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

INSIDE = f"""
import sys
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
import lesson
lesson.begin()
lesson.say("inside: " + str(sum(range(1000))))
lesson.finish()
"""


def main():
    model = lesson.make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = torch.utils.data.DataLoader(lesson.make_samples(), batch_size=8)
    for step, batch in enumerate(loader, 1):
        loss = lesson.take_step(model, optimizer, batch)
        if step == lesson.STEPS:
            break
    # Behind the loop: torch itself refuses a backward once there has been a second interpreter.
    inside = interpreters.create()
    try:
        interpreters.run_string(inside, INSIDE)
    finally:
        interpreters.destroy(inside)
    lesson.is_over(step, model, loss)


main()
