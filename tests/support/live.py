"""Runs that record, or ended a given time ago."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from collector.format.schema import layout
from collector.format.schema.manifest import RankManifest, decode_manifest, encode_manifest
from tests.support.runs import RunPlan, build_run


def build_live_run(path: Path, **plan: Any) -> Path:
    """Write a run that this process records."""
    return build_run(path, RunPlan(**{"state": "recording", "operators": False, **plan}))


def build_ended_run(path: Path, ago_s: float, **plan: Any) -> Path:
    """Write a run that ended so long ago."""
    build_run(path, RunPlan(**{"operators": False, **plan}))
    for rank in layout.find_ranks(path):
        edit_rank(path, rank, ended_unix_ns=time.time_ns() - int(ago_s * 1e9))
    return path


def edit_rank(path: Path, rank: int = 0, **values: Any) -> None:
    """Set fields of a rank's manifest."""
    file = layout.rank_file(path, rank)
    manifest = decode_manifest(RankManifest, file.read_text(encoding="utf-8"), str(file))
    file.write_text(encode_manifest(replace(manifest, **values)), encoding="utf-8")


def edit_run(path: Path, **values: Any) -> None:
    """Set fields of a run's manifest, whatever they are."""
    file = layout.run_file(path)
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | values), encoding="utf-8")
