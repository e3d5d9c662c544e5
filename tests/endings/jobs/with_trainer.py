"""A Trainer of Hugging Face."""

import lesson
import torch
import transformers


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = lesson.make_model()

    def forward(self, inputs, labels):
        logits = self.net(inputs)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class Lines(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **rest):
        if lesson.is_over(state.global_step, model):
            control.should_training_stop = True


class Named(torch.utils.data.Dataset):
    def __init__(self):
        self.samples = lesson.make_samples()

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        inputs, label = self.samples[index]
        return {"inputs": inputs, "labels": label}


def main():
    arguments = transformers.TrainingArguments(
        output_dir="trainer",
        per_device_train_batch_size=8,
        max_steps=5_000,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(model=Net(), args=arguments, train_dataset=Named(), callbacks=[Lines()])
    trainer.remove_callback(transformers.PrinterCallback)  # prints times
    lesson.begin()
    trainer.train()
    lesson.finish()


main()
