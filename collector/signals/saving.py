"""Checkpoints: saving on the thread that trains becomes a range, so that what it holds up has a name."""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch

from collector.context.signals import SignalContext
from collector.edge import hide_frame
from collector.marks.ranges import record

RANGE = "torch.save"
_DISTRIBUTED = "torch.distributed.checkpoint"
_LATER = (
    # The package takes its functions from the module: both hold them by name.
    (f"{_DISTRIBUTED}.state_dict_saver", "save", f"{_DISTRIBUTED}.save"),
    (f"{_DISTRIBUTED}.state_dict_saver", "async_save", f"{_DISTRIBUTED}.async_save"),
    (_DISTRIBUTED, "save", f"{_DISTRIBUTED}.save"),
    (_DISTRIBUTED, "async_save", f"{_DISTRIBUTED}.async_save"),
    # Other libraries hold `save_file` under names of their own; this is what it calls.
    ("safetensors.torch", "serialize_file", "safetensors.save_file"),
    ("lightning.pytorch.trainer.trainer", "Trainer.save_checkpoint", "Trainer.save_checkpoint"),
    ("pytorch_lightning.trainer.trainer", "Trainer.save_checkpoint", "Trainer.save_checkpoint"),
    ("transformers.trainer", "Trainer._save_checkpoint", "Trainer.save_checkpoint"),
    ("accelerate.accelerator", "Accelerator.save_state", "Accelerator.save_state"),
)
"""Module, function or method, and range of what saves besides `torch.save`. None of it is imported for this."""


class SavingSignal:
    """One on another thread holds nothing up, and is left alone."""

    name = "saving"
    option = ""

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._watched: set[Any] = set()
        # One way to save may call another: the outermost is what the script asked for.
        self._saves = [False]
        self._watch(torch, "save", RANGE)
        for module in dict.fromkeys(name for name, _, _ in _LATER):
            context.when_imported(module, functools.partial(self._watch_module, module))

    def remove(self) -> None:
        pass

    def _watch_module(self, name: str) -> None:
        for module, function, range_name in _LATER:
            if module == name:
                self._watch(sys.modules[name], function, range_name)

    def _watch(self, owner: Any, path: str, range_name: str) -> None:
        *above, name = path.split(".")
        for part in above:
            owner = getattr(owner, part, None)
        save = getattr(owner, name, None)
        if save is None or save in self._watched:
            return
        is_mine, block, saves = self._context.log.is_mine, record(range_name), self._saves

        @functools.wraps(save)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if not is_mine() or saves[0]:
                try:
                    return save(*args, **kwargs)
                except BaseException as error:
                    hide_frame(error)
                    raise
            saves[0] = True
            try:
                with block:
                    return save(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            finally:
                saves[0] = False

        self._watched.add(watched)
        self._context.undo.patch(owner, name, watched)


SIGNAL = SavingSignal
