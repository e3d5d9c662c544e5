"""A daemon thread trains on while the main thread ends."""

import threading

import lesson
import torch

passed = threading.Event()


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = torch.utils.data.DataLoader(lesson.make_samples(), batch_size=8)
    for step, batch in enumerate(loader, 1):
        loss = lesson.take_step(model, optimizer, batch)
        if step < lesson.STEPS:
            lesson.is_over(step, model, loss)
        elif step == lesson.STEPS:
            lesson.say(f"step {step} of rank 0, loss {loss.item().hex()}, weights {lesson.digest(model)}")
            lesson.save(model, 0)
            lesson.say("last step of rank 0")
            passed.set()


def main():
    model = lesson.make_model()
    lesson.begin()
    threading.Thread(target=train, args=(model,), daemon=True).start()
    passed.wait()
    if lesson.WAITS_FOR_SIGNAL:
        threading.Event().wait(lesson.PATIENCE_S)
    lesson.end(model, 0)
    lesson.finish()


main()
