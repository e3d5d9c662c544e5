"""Checkpoints: `torch.save` on the thread that trains becomes a range, so that what it holds up has a name."""

from __future__ import annotations

import functools
from typing import Any

import torch

from collector.context.signals import SignalContext
from collector.marks.ranges import record

RANGE = "torch.save"


class SavingSignal:
    """One on another thread holds nothing up, and is left alone."""

    name = "saving"
    option = ""

    def install(self, context: SignalContext) -> None:
        save, is_mine, block = torch.save, context.log.is_mine, record(RANGE)

        @functools.wraps(save)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if not is_mine():
                return save(*args, **kwargs)
            with block:
                return save(*args, **kwargs)

        context.undo.patch(torch, "save", watched)

    def remove(self) -> None:
        pass


SIGNAL = SavingSignal
