"""Hugging Face: `Trainer(callbacks=[StepscopeCallback()])`."""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from collector import active_profiler
from collector.edge import say
from collector.session.framework import FrameworkRun


class StepscopeCallback(TrainerCallback):  # type: ignore[misc]
    """Record each `train()` of the Trainer, its evaluation and its saving with it.

    `options` are those of `stepscope.Profiler`, and so is `output_path`. The default path is
    `profiler_output/<run_name>`, or the class of the model where the TrainingArguments have no `run_name`. Where a
    Profiler records already, nothing is added. `evaluate()` and `predict()` without a `train()` before them are not
    recorded, because the Trainer has no event at their beginning: one line on stderr says what to write. Raises
    OptionError for an option that Profiler does not take.
    """

    def __init__(self, output_path: str | os.PathLike[str] | None = None, **options: Any) -> None:
        self._run = FrameworkRun("transformers", output_path, options)
        self._is_silent = False

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
        self._is_silent = True
        self._run.begin(lambda: args.run_name or type(model).__name__)

    def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self._run.end()

    def on_evaluate(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self._advise(state, "evaluate()")

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any = None, **rest: Any) -> None:
        self._advise(state, "predict(texts)")

    def _advise(self, state: Any, call: str) -> None:
        if not self._is_silent and state.is_world_process_zero and active_profiler() is None:
            self._is_silent = True
            say(
                f"{call} was not recorded: StepscopeCallback records train(); "
                f"write: with stepscope.Profiler({os.fspath(self._run.output_path or 'runs/evaluation')!r}): trainer.{call}"
            )
