"""Hugging Face: `Trainer(callbacks=[StepscopeCallback()])`."""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from collector.session.framework import FrameworkRun


class StepscopeCallback(TrainerCallback):  # type: ignore[misc]
    """Record each `train()` of the Trainer, its evaluation and its saving with it.

    `options` are those of `stepscope.Profiler`, and so is `output_path`. The default path is
    `profiler_output/<run_name>`, or the class of the model where the TrainingArguments have no `run_name`. Where a
    Profiler records already, nothing is added. Raises OptionError for an option that Profiler does not take.
    """

    def __init__(self, output_path: str | os.PathLike[str] | None = None, **options: Any) -> None:
        self._run = FrameworkRun("transformers", output_path, options)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
        self._run.begin(lambda: args.run_name or type(model).__name__)

    def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self._run.end()
