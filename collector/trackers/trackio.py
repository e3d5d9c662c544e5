"""Log to the run that `trackio.init` has started, as its system metrics: these have times and leave its steps alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Trackio:
    def __init__(self, name: str, run_path: Path) -> None:
        self._run: Any = None

    def find(self) -> bool:
        held = getattr(sys.modules.get("trackio.context_vars"), "current_run", None)
        self._run = None if held is None else held.get()
        return self._run is not None

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self._run.log_system({**figures, "stepscope/step": step})

    def conclude(self, figures: Mapping[str, float], texts: Mapping[str, str], report: Path | None, step: int) -> None:
        self.log(figures, step)
        if report is not None:
            import trackio

            about = {**figures, **texts}
            artifact = trackio.Artifact(f"stepscope-{self._run.name}", "report", texts.get("stepscope/verdict"), about)
            artifact.add_file(str(report), "report.html")
            self._run.log_artifact(artifact)


TRACKER = Trackio
