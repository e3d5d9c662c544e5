"""What `accelerate launch` starts: without a GPU, one process."""

import lesson
import torch
from accelerate import Accelerator


def main():
    accelerator = Accelerator(cpu=True)
    model = lesson.make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = torch.utils.data.DataLoader(lesson.make_samples(), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    lesson.begin()
    for step, batch in enumerate(loader, 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        accelerator.backward(loss)
        optimizer.step()
        if lesson.is_over(step, model, loss):
            break
    lesson.finish()
    accelerator.end_training()


main()
