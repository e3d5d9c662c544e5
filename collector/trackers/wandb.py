"""Log to the run that `wandb.init` has started. Its own count of steps is not changed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STEP = "stepscope/step"


class Wandb:
    def __init__(self, name: str, run_path: Path) -> None:
        self._run: Any = None
        self._has_axis = False

    def find(self) -> bool:
        self._run = getattr(sys.modules.get("wandb"), "run", None)
        return self._run is not None

    def log(self, figures: Mapping[str, float], step: int) -> None:
        if not self._has_axis:
            self._run.define_metric(STEP, hidden=True)
            self._run.define_metric("stepscope/*", step_metric=STEP)
            self._has_axis = True
        # A commit would begin the user's next step: W&B drops what the user then logs with a lower number.
        self._run.log({**figures, STEP: step}, commit=False)

    def conclude(self, figures: Mapping[str, float], texts: Mapping[str, str], report: Path | None, step: int) -> None:
        self._run.summary.update({**figures, **texts})
        if report is not None:
            import wandb

            artifact = wandb.Artifact(f"stepscope-{self._run.id}", type="report")
            artifact.add_file(str(report), name="report.html")
            self._run.log_artifact(artifact)


TRACKER = Wandb
