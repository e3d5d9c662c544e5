"""A loop in the main thread."""

import lesson
import torch


def main():
    model = lesson.make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    lesson.begin()
    loader = torch.utils.data.DataLoader(lesson.make_samples(), batch_size=8)
    for step, batch in enumerate(loader, 1):
        loss = lesson.take_step(model, optimizer, batch)
        if lesson.is_over(step, model, loss):
            break
    lesson.finish()


main()
