"""A loop whose batches two workers make."""

import lesson
import torch


def main():
    model = lesson.make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    lesson.begin()
    loader = torch.utils.data.DataLoader(lesson.make_samples(), batch_size=8, num_workers=2)
    for step, batch in enumerate(loader, 1):
        loss = lesson.take_step(model, optimizer, batch)
        if lesson.is_over(step, model, loss):
            break
    lesson.finish()


main()
