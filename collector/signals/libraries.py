"""Record library calls that hold up the training thread: time in logging is summed, saving a checkpoint becomes a
range.

Of nested calls only the outermost is recorded. Calls on other threads do not hold up the training and are ignored. No
library is imported for this.
"""

from __future__ import annotations

import functools
import sys
from contextlib import AbstractContextManager
from time import perf_counter_ns
from typing import Any

from collector.context.signals import Signal, SignalContext
from collector.edge import hide_frame, uncounted
from collector.marks.ranges import record

_WRITER = tuple(
    f"SummaryWriter.{name}"
    for name in ("add_scalar", "add_scalars", "add_image", "add_images", "add_histogram", "add_figure", "flush")
)
_LOGS = (
    ("logging", ("Logger.callHandlers",), "logging"),
    ("torch.utils.tensorboard.writer", _WRITER, "TensorBoard"),
    ("tensorboardX.writer", _WRITER, "TensorBoard"),
    ("wandb.sdk.wandb_run", ("Run.log",), "Weights & Biases"),
    ("mlflow.tracking.client", ("MlflowClient.log_metric", "MlflowClient.log_batch"), "MLflow"),
)
"""Module, its logging methods, and the name shown to users."""
_DISTRIBUTED = "torch.distributed.checkpoint"
_SAVES = (
    ("torch", ("save",), "torch.save"),
    # The package takes its functions from the module: both hold them by name.
    (f"{_DISTRIBUTED}.state_dict_saver", ("save",), f"{_DISTRIBUTED}.save"),
    (f"{_DISTRIBUTED}.state_dict_saver", ("async_save",), f"{_DISTRIBUTED}.async_save"),
    (_DISTRIBUTED, ("save",), f"{_DISTRIBUTED}.save"),
    (_DISTRIBUTED, ("async_save",), f"{_DISTRIBUTED}.async_save"),
    # Other libraries hold `save_file` under their own names. `serialize_file` is the function that it calls.
    ("safetensors.torch", ("serialize_file",), "safetensors.save_file"),
    ("lightning.pytorch.trainer.trainer", ("Trainer.save_checkpoint",), "Trainer.save_checkpoint"),
    ("pytorch_lightning.trainer.trainer", ("Trainer.save_checkpoint",), "Trainer.save_checkpoint"),
    ("transformers.trainer", ("Trainer._save_checkpoint",), "Trainer.save_checkpoint"),
    ("accelerate.accelerator", ("Accelerator.save_state",), "Accelerator.save_state"),
)
"""Module, its saving functions or methods, and the name of their range."""


class LibraryCalls(Signal):
    """Base class of signals that wrap the functions of `table`.

    Each outermost call on the training thread runs in the context manager that `measure` returns for its label.
    """

    table: tuple[tuple[str, tuple[str, ...], str], ...]

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._watched: set[Any] = set()
        self._is_inside = [False]
        for module in dict.fromkeys(name for name, _, _ in self.table):
            context.when_imported(module, functools.partial(self._watch_module, module))

    def measure(self, label: str) -> AbstractContextManager[object]:
        raise NotImplementedError

    def _watch_module(self, module: str) -> None:
        for path, label in ((path, label) for name, paths, label in self.table if name == module for path in paths):
            *above, name = path.split(".")
            owner: Any = sys.modules[module]
            for part in above:
                owner = getattr(owner, part, None)
            original = getattr(owner, name, None)
            if callable(original) and original not in self._watched:
                hook = self._make_hook(original, self.measure(label))
                self._watched.add(hook)
                self._context.undo.patch(owner, name, hook)

    def _make_hook(self, original: Any, block: AbstractContextManager[object]) -> Any:
        is_mine, inside = self._context.log.is_mine, self._is_inside

        @functools.wraps(original)
        @uncounted
        def watched(*args: Any, **kwargs: Any) -> Any:
            try:
                if inside[0] or not is_mine():
                    return original(*args, **kwargs)
                inside[0] = True
                try:
                    with block:
                        return original(*args, **kwargs)
                finally:
                    inside[0] = False
            except BaseException as error:
                hide_frame(error)
                raise

        return watched


class LoggingSums:
    """The number and time of calls into one library, over the run. A context manager that each call enters, at some 0.5
    µs.
    """

    __slots__ = ("_began", "calls", "longest_ns", "total_ns")

    def __init__(self) -> None:
        self.calls = self.total_ns = self.longest_ns = 0

    def __enter__(self) -> None:
        self._began = perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        took_ns = perf_counter_ns() - self._began
        self.calls += 1
        self.total_ns += took_ns
        if took_ns > self.longest_ns:
            self.longest_ns = took_ns

    def describe(self) -> dict[str, int]:
        return {"calls": self.calls, "longest_ns": self.longest_ns, "total_ns": self.total_ns}


class LoggingSignal(LibraryCalls):
    """The signal of time in logging calls on the training thread. The sums are a fact of the run, saved now and then."""

    name = "logging_calls"
    table = _LOGS

    def install(self, context: SignalContext) -> None:
        self._sums: dict[str, LoggingSums] = {}
        super().install(context)
        context.save_now_and_then(self.name, self._save)

    def measure(self, label: str) -> AbstractContextManager[object]:
        return self._sums.setdefault(label, LoggingSums())

    def _save(self) -> None:
        entries = [{"name": label, **sums.describe()} for label, sums in self._sums.items() if sums.calls]
        if entries:
            self._context.add_fact("logging", {"steps": self._context.steps.ended, "libraries": entries})


class SavingSignal(LibraryCalls):
    """The signal of checkpoints: saving on the training thread becomes a named range."""

    name = "saving"
    table = _SAVES

    def measure(self, label: str) -> AbstractContextManager[object]:
        return record(label)


SIGNAL = (LoggingSignal, SavingSignal)
