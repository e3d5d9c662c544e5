"""A diagnosis of a planted run."""

from __future__ import annotations

from pathlib import Path

from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.results import Diagnosis
from tests.support.cases import Plant, build_case_run


def diagnose_plant(path: Path, plant: Plant) -> Diagnosis:
    return diagnose(build_case_run(path, plant), 0)
