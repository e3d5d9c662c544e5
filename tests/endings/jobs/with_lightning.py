"""A Lightning Trainer."""

import lesson
import lightning
import torch
from torch import nn


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = lesson.make_model()

    def training_step(self, batch, index):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


class Lines(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if lesson.is_over(index + 1, module.net, outputs["loss"]):
            trainer.should_stop = True


def main():
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        callbacks=[Lines()],
    )
    lesson.begin()
    trainer.fit(Module(), torch.utils.data.DataLoader(lesson.make_samples(), batch_size=8))
    lesson.finish()


main()
