"""How long the training thread is held by logging: TensorBoard, Weights & Biases, MLflow, and Python's own.

The calls are added up, some 0.4 µs each; the sums are a fact of the run, saved now and then. None of the libraries is
imported for this.
"""

from __future__ import annotations

import functools
import sys
from time import perf_counter_ns
from typing import Any

from collector.context.milestones import Milestones
from collector.context.signals import SignalContext
from collector.edge import hide_frame

_WRITER = tuple(
    f"SummaryWriter.{name}"
    for name in ("add_scalar", "add_scalars", "add_image", "add_images", "add_histogram", "add_figure", "flush")
)
_WATCHED = (
    ("logging", ("Logger.callHandlers",), "logging"),
    ("torch.utils.tensorboard.writer", _WRITER, "TensorBoard"),
    ("tensorboardX.writer", _WRITER, "TensorBoard"),
    ("wandb.sdk.wandb_run", ("Run.log",), "Weights & Biases"),
    ("mlflow.tracking.client", ("MlflowClient.log_metric", "MlflowClient.log_batch"), "MLflow"),
)
"""Module, its methods, and what a user calls it."""


class LoggingSums:
    """What one library took: calls from the training thread that no other of them made."""

    __slots__ = ("calls", "longest_ns", "total_ns")

    def __init__(self) -> None:
        self.calls = self.total_ns = self.longest_ns = 0

    def add(self, took_ns: int) -> None:
        self.calls += 1
        self.total_ns += took_ns
        if took_ns > self.longest_ns:
            self.longest_ns = took_ns


class LoggingSignal:
    name = "logging_calls"
    option = ""

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._sums: dict[str, LoggingSums] = {}
        self._is_inside = [False]
        for module, methods, label in _WATCHED:
            context.when_imported(module, functools.partial(self._watch_module, module, methods, label))
        self._milestones = Milestones(context, self.name, self._save)

    def remove(self) -> None:
        self._milestones.finish()

    def _watch_module(self, module: str, methods: tuple[str, ...], label: str) -> None:
        for path in methods:
            owner_name, name = path.split(".")
            owner = getattr(sys.modules[module], owner_name, None)
            original = vars(owner).get(name) if isinstance(owner, type) else None
            if callable(original):
                sums = self._sums.setdefault(label, LoggingSums())
                self._context.undo.patch(owner, name, self._make_hook(original, sums))

    def _make_hook(self, original: Any, sums: LoggingSums) -> Any:
        is_mine, inside, now = self._context.log.is_mine, self._is_inside, perf_counter_ns

        @functools.wraps(original)
        def logs(*args: Any, **kwargs: Any) -> Any:
            if inside[0] or not is_mine():
                try:
                    return original(*args, **kwargs)
                except BaseException as error:
                    hide_frame(error)
                    raise
            inside[0] = True
            before = now()
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            finally:
                inside[0] = False
                sums.add(now() - before)

        return logs

    def _save(self) -> None:
        found = {label: sums for label, sums in self._sums.items() if sums.calls}
        entries = [
            {"name": label, **{key: getattr(sums, key) for key in sums.__slots__}} for label, sums in found.items()
        ]
        if entries:
            steps = self._context.steps.ended
            self._context.add_fact("logging", {"steps": steps, "libraries": entries})


SIGNAL = LoggingSignal
