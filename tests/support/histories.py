"""Runs of one script over some days, built in code: each with its time, machine, commit and sampled stacks."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collector.format.run import Run, open_run
from collector.format.schema import layout
from collector.format.schema.manifest import Device, encode_manifest
from tests.support.row_edits import lay_end_to_end, write_rows
from tests.support.runs import EPOCH_UNIX_NS, RunPlan, build_run
from tests.support.stacks import in_phase, library, own, write_stacks

DAY_NS = 86_400_000_000_000
COMMITS = tuple(f"{digit}" * 40 for digit in "abcdef")


@dataclass(frozen=True)
class Recorded:
    """What one run is like. `extra_ms` is added to each forward; `samples` of stacks lie in `normalize()` there."""

    day: float = 0.0
    extra_ms: float = 0.0
    samples: int = 0
    line: int = 41
    steps: int = 40
    host: str = "here"
    device: str = ""
    batch_size: int = 32
    commit: str = COMMITS[0]
    is_dirty: bool = False
    sums: str = "aaaabbbbcccc"
    seed: int = 0


def build_recorded(path: Path, recorded: Recorded | None = None) -> Run:
    """Write a run to a path and open it."""
    asked = recorded or Recorded()
    run = open_run(build_run(path, RunPlan(steps=asked.steps)))
    random = np.random.default_rng(asked.seed)
    rows = run.rank().table("steps").to_pylist()
    for row in rows:
        for phase in ("forward", "backward", "optimizer"):
            row[f"{phase}_ns"] = int(row[f"{phase}_ns"] * (1 + 0.03 * random.standard_normal()))
        row["forward_ns"] += int(asked.extra_ms * 1e6)
    if rows:
        lay_end_to_end(rows)
        write_rows(run.rank().folder, "steps", rows)
    stacks = [
        in_phase("forward", 400, library("Module._call_impl", "torch/nn/modules/module.py"), own("Net.forward", 7)),
        in_phase("backward", 700, library("Tensor.backward", "torch/_tensor.py")),
        in_phase("optimizer", 120, library("AdamW.step", "torch/optim/adamw.py")),
    ]
    write_stacks(
        path, [*stacks, *([in_phase("forward", asked.samples, own("normalize", asked.line))] * bool(asked.samples))]
    )
    _write_manifests(run, asked)
    return open_run(path)


def _write_manifests(run: Run, asked: Recorded) -> None:
    created_ns = EPOCH_UNIX_NS + int(asked.day * DAY_NS)
    manifest = dataclasses.replace(run.manifest, created_unix_ns=created_ns, host=asked.host)
    layout.run_file(run.path).write_text(encode_manifest(manifest))
    rank = run.rank().manifest
    facts: dict[str, Any] = {
        "source_lines": {"/home/me/train.py": {str(asked.line): "batch = scale(batch)"}},
        "source_sums": {"/home/me/train.py": asked.sums},
        "checkout": {"commit": asked.commit, "is_dirty": asked.is_dirty},
    }
    changed = dataclasses.replace(
        rank,
        loaders=(dataclasses.replace(rank.loaders[0], batch_size=asked.batch_size),),
        devices=(Device(0, asked.device),) if asked.device else (),
        facts=facts,
    )
    layout.rank_file(run.path, 0).write_text(encode_manifest(changed))


def build_history(base: Path) -> None:
    """Write fourteen runs of which the last seven are slower, two runs of another machine, and one without steps."""
    for at in range(7):
        build_recorded(base / f"cnn-{at}", Recorded(at, commit=COMMITS[at // 4], seed=at))
    for at in range(7, 14):
        changed = Recorded(at, 9.0, 240, 44, commit=COMMITS[2], is_dirty=at == 7, sums="aaaaddddbbbbcccc", seed=at)
        build_recorded(base / f"cnn-{at}", changed)
    for at in (2, 4):
        elsewhere = Recorded(at + 0.5, host="gpu-box", device="NVIDIA H100", batch_size=64, seed=at)
        build_recorded(base / f"cnn-10{at}", elsewhere)
    build_recorded(base / "cnn-200", Recorded(20, steps=0))
