"""Two threads that train a model each, one after the other's start; the main thread waits for them."""

import threading

import lesson
import torch


def train(who, model):
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = torch.utils.data.DataLoader(lesson.make_samples(), batch_size=8)
    for step, batch in enumerate(loader, 1):
        loss = lesson.take_step(model, optimizer, batch)
        if lesson.is_over(step, model, loss, who):
            break


def main():
    models = [lesson.make_model(), lesson.make_model()]
    lesson.begin()
    threads = [threading.Thread(target=train, args=each) for each in enumerate(models)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lesson.finish()


main()
