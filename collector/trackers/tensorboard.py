"""Log to event files of TensorBoard: with the user's SummaryWriter, or to the folder `tensorboard` of the run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Tensorboard:
    def __init__(self, writer: Any, run_path: Path) -> None:
        self._is_ours = isinstance(writer, str)
        if self._is_ours:
            # Imported now, before the training, because it takes a second.
            from torch.utils.tensorboard import SummaryWriter

            # Each recording has a folder of its own: TensorBoard joins all files of a folder to one curve.
            writer = SummaryWriter(run_path / "tensorboard" / time.strftime("%Y%m%d-%H%M%S"))
        self._writer = writer

    def find(self) -> bool:
        return True

    def log(self, figures: Mapping[str, float], step: int) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def conclude(self, figures: Mapping[str, float], texts: Mapping[str, str], report: Path | None, step: int) -> None:
        self.log(figures, step)
        for name, text in texts.items():
            self._writer.add_text(name, text, step)
        self._writer.flush()
        if self._is_ours:
            self._writer.close()


TRACKER = Tensorboard
