"""Run a drawn program below TraceML itself, and read what its summary names first.

The package is not installed with ours: `--traceml FOLDER` names a folder that holds it (`pip install --target FOLDER
--no-deps traceml-ai nvidia-ml-py`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.zoo.scoring.peers import Area

NAME = "TraceML itself"
_AREAS: dict[str, Area] = {"INPUT_BOUND": "input", "RESIDUAL_HEAVY": "outside", "COMPUTE_BOUND": "compute"}
_COMMAND = "from traceml_ai.launcher.cli import main; main()"
_TIMEOUT_S = 240


def ask_traceml(program: Path, package: Path, folder: Path) -> Area:
    """Return the area that TraceML names; the run is kept in `folder` and not made again."""
    found = _read_summary(folder)
    if found is None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [sys.executable, "-c", _COMMAND, "run", str(program), "--mode=summary", "--logs-dir", str(folder)]
        subprocess.run(
            command,
            check=False,
            capture_output=True,
            timeout=_TIMEOUT_S,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(package.absolute())},
        )
        found = _read_summary(folder)
    return _AREAS.get(found or "", "")


def _read_summary(folder: Path) -> str | None:
    for path in sorted(folder.rglob("final_summary.json")):
        return str(json.loads(path.read_text("utf-8"))["primary_diagnosis"]["kind"])
    return None
