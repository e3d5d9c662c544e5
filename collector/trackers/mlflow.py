"""Log to the active run of MLflow, by its id: the run that is active belongs to one thread."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Mlflow:
    def __init__(self, name: str, run_path: Path) -> None:
        self._client: Any = None
        self._run_id = ""
        self._uri = ""

    def find(self) -> bool:
        mlflow = sys.modules.get("mlflow")
        active = getattr(mlflow, "active_run", lambda: None)()
        if mlflow is None or active is None:
            return False
        self._run_id, self._uri = active.info.run_id, mlflow.get_tracking_uri()
        return True

    def log(self, figures: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        metrics = [Metric(name, value, now_ms, step) for name, value in figures.items()]
        self._open().log_batch(self._run_id, metrics=metrics)

    def conclude(self, figures: Mapping[str, float], texts: Mapping[str, str], report: Path | None, step: int) -> None:
        self.log(figures, step)
        for name, text in texts.items():
            self._open().set_tag(self._run_id, name, text[:5000])  # more than any server refuses
        if report is not None:
            self._open().log_artifact(self._run_id, str(report), "stepscope")

    def _open(self) -> Any:
        if self._client is None:
            from mlflow import MlflowClient

            self._client = MlflowClient(self._uri)
        return self._client


TRACKER = Mlflow
