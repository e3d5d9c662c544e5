"""Run a program below `stepscope run`, keep what it recorded, and find it again the next time."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from collector.format.run import Run, open_run
from collector.format.schema.errors import RunError
from collector.format.steps import summarize_steps
from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.results import Diagnosis, Suggestion

TIMEOUT_S = 400
SILENT = ("info",)
"""Severities that do not count as an alarm: they state a fact and ask for nothing."""
_PRINTED = re.compile(r"^(\d+) updates, ([\d.]+) s,", re.MULTILINE)
_ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Ran:
    """How a program ended: what it printed of its own time, and the load of the host when it began."""

    arguments: tuple[str, ...]
    exit_code: int
    updates: int
    loop_s: float
    wall_s: float
    load: float
    said: str = ""


@dataclass(frozen=True)
class Recording:
    """One run of a program. The advice on it is made anew every time, so that kept runs can be judged by new rules."""

    folder: Path
    ran: Ran

    @property
    def is_whole(self) -> bool:
        return self.ran.exit_code == 0 and self.ran.updates > 0 and self.step_ns > 0

    @property
    def clock_ns(self) -> float:
        """Return the time per update by the program's own clock, with the start of the first batch."""
        return self.ran.loop_s / self.ran.updates * 1e9 if self.ran.updates else 0.0

    @cached_property
    def run(self) -> Run:
        return open_run(self.folder / "run")

    @cached_property
    def step_ns(self) -> float:
        """Return the mean step as the profiler gives it; 0 where it recorded none."""
        try:
            duration = summarize_steps(self.run.table("steps")).duration_ns
        except RunError:
            return 0.0
        return duration.mean if duration is not None else 0.0

    @cached_property
    def diagnosis(self) -> Diagnosis:
        return diagnose(self.run, self.run.ranks[0])

    @property
    def advice(self) -> tuple[Suggestion, ...]:
        return tuple(s for s in self.diagnosis.suggestions if s.severity not in SILENT)

    @property
    def promises(self) -> tuple[Suggestion, ...]:
        """Return the advice that promises a gain."""
        return tuple(s for s in self.advice if s.predicted_step_ns is not None)


@dataclass(frozen=True)
class Recorder:
    """Records programs into folders below `keep`; what lies there whole is not recorded again."""

    programs: Path
    keep: Path
    steps: int | None = None

    def record(self, script: str, form: str, arguments: Sequence[str] = ()) -> Recording:
        folder = self.keep / script / form
        kept = _read_kept(folder, tuple(arguments))
        if kept is not None:
            return Recording(folder, kept)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        ran = _run(self.programs / f"{script}.py", folder, (*arguments, *self._say_steps()))
        ran = Ran(**{**asdict(ran), "arguments": tuple(arguments)})
        (folder / "ran.json").write_text(json.dumps(asdict(ran)), "utf-8")
        return Recording(folder, ran)

    def _say_steps(self) -> tuple[str, ...]:
        return () if self.steps is None else ("--steps", str(self.steps))


def _read_kept(folder: Path, arguments: tuple[str, ...]) -> Ran | None:
    try:
        kept = json.loads((folder / "ran.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    ran = Ran(**{**kept, "arguments": tuple(kept["arguments"])})
    return ran if ran.arguments == arguments and ran.exit_code == 0 else None


def _run(program: Path, folder: Path, arguments: tuple[str, ...]) -> Ran:
    command = [sys.executable, "-m", "collector.launch", "--output", str(folder / "run"), str(program), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    environment.pop("PROFILER_OUTPUT_PATH", None)
    load, began = os.getloadavg()[0], time.monotonic()
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, timeout=TIMEOUT_S, text=True, cwd=folder, env=environment
        )
        code, printed, problem = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        code, printed, problem = 124, "", f"did not end within {TIMEOUT_S} s"
    found = _PRINTED.search(printed)
    return Ran(
        arguments=arguments,
        exit_code=code,
        updates=int(found[1]) if found else 0,
        loop_s=float(found[2]) if found else 0.0,
        wall_s=round(time.monotonic() - began, 2),
        load=load,
        said=problem[-600:] if code else "",
    )
