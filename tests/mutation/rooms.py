"""What is mutated, which tests must notice, and changes that no operator makes by itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Room:
    """`files` and `tests` are paths from the repository's root."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Planted:
    """A mistake by hand: a piece of text that stands in the file once, what takes its place, and who must notice.

    `name` says what would be wrong for a user.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def _list_files(folder: str) -> tuple[str, ...]:
    return tuple(str(path.relative_to(ROOT)) for path in sorted((ROOT / folder).rglob("*.py")))


ROOMS = {
    "steps": Room(("collector/format/steps.py",), ("tests/unit/format/test_steps.py",)),
    "intervals": Room(("collector/format/intervals.py",), ("tests/unit/format/test_intervals.py",)),
    "noise": Room(("collector/format/noise.py",), ("tests/unit/format/test_noise.py",)),
    "lens": Room(("collector/format/lens.py",), ("tests/unit/format/test_lens.py",)),
    "ring": Room(("collector/ring/words.py", "collector/ring/records.py"), ("tests/unit/ring",)),
    "packing": Room(("collector/ring/packing.py",), ("tests/unit/ring/test_packing.py",)),
    "codes": Room(
        ("collector/ring/codes.py", "collector/format/lens.py"),
        ("tests/unit/ring", "tests/unit/sidecar/test_steady.py"),
    ),
    "formulas": Room(
        _list_files("collector/traces/formulas"),
        ("tests/unit/traces/test_flops.py",),
    ),
    "calls": Room(
        ("collector/traces/call.py", "collector/format/words.py"),
        (
            "tests/unit/traces/test_calls.py",
            "tests/unit/format/test_element_bytes.py",
            "tests/unit/traces/test_flops.py",
        ),
    ),
    "trace_steps": Room(_list_files("collector/traces/kineto/steps"), ("tests/unit/traces",)),
    "device": Room(_list_files("profiler_server/analysis/device"), ("tests/unit/analysis/device",)),
    "roofline": Room(
        ("profiler_server/analysis/operators/roofline.py",), ("tests/unit/analysis/operators/test_roofline.py",)
    ),
    "outliers": Room(
        ("profiler_server/analysis/steps/outliers.py", "profiler_server/analysis/steps/step_figures.py"),
        ("tests/unit/analysis/steps", "tests/unit/format/test_steps.py"),
    ),
    "what_if": Room(
        (*_list_files("profiler_server/analysis/what_if"), "profiler_server/facts/job.py"),
        (
            "tests/unit/analysis/what_if",
            "tests/golden/test_what_if.py",
            "tests/golden/test_pipelines.py",
            "tests/unit/traces/test_job_operations.py",
            "tests/unit/diagnosis/test_stragglers.py",
            "tests/unit/diagnosis/test_limits.py",
        ),
    ),
    "ranks": Room(
        _list_files("profiler_server/analysis/ranks"),
        (
            "tests/unit/analysis/ranks",
            *("tests/unit/traces/test_flight_recorder.py", "tests/unit/traces/test_nccl_status.py"),
            "tests/unit/pages/test_rank_maps.py",
            "tests/unit/diagnosis/test_stragglers.py",
            "tests/unit/diagnosis/test_limits.py",
        ),
    ),
    "compare": Room(
        _list_files("profiler_server/analysis/compare"),
        ("tests/unit/analysis/compare", "tests/web/test_compare.py", "tests/unit/diagnosis/test_limits.py"),
    ),
    "benchmark": Room(
        (
            "collector/launch/benchmark/figures.py",
            "collector/launch/benchmark/comparison.py",
        ),
        ("tests/unit/launch/test_figures.py", "tests/unit/launch/test_comparison.py"),
    ),
    "limits": Room(_list_files("profiler_server/diagnosis/limits"), ("tests/unit/diagnosis/test_limits.py",)),
    "rules": Room(_list_files("profiler_server/diagnosis/rules"), ("tests/unit/diagnosis",)),
    "diagnosis": Room(
        tuple(
            f"profiler_server/diagnosis/{name}.py"
            for name in (
                *("judging", "ranking", "deriving", "measuring"),
                *("bottleneck", "verdict", "outcome", "what_if"),
            )
        ),
        ("tests/unit/diagnosis",),
    ),
    "replay": Room(
        _list_files("profiler_server/analysis/replay"),
        (
            "tests/unit/analysis/replay",
            "tests/unit/diagnosis/test_limits.py",
            "tests/unit/diagnosis/rules/test_window_rules.py",
            "tests/unit/diagnosis/rules/test_window_notes.py",
        ),
    ),
    "machine": Room(
        ("collector/sidecar/steps/machine.py",),
        ("tests/unit/sidecar/test_acting.py", "tests/unit/sidecar/test_steady.py"),
    ),
}
PLANTED = (
    Planted(
        "zeroing the gradients counts as tail",
        "collector/sidecar/steps/machine.py",
        "codes.ZERO_START: OPTIMIZER",
        "codes.ZERO_START: TAIL",
        ("tests/unit/sidecar/test_steady.py",),
    ),
    Planted(
        "p99 is the 98th percentile",
        "collector/format/steps.py",
        '"p99": 99.0',
        '"p99": 98.0',
        ("tests/unit/format/test_steps.py",),
    ),
    Planted(
        "a step is an outlier from twelve deviations on",
        "profiler_server/diagnosis/limits/steps.py",
        "DEVIATIONS = 6.0",
        "DEVIATIONS = 12.0",
        ("tests/unit/analysis/steps/test_steps.py",),
    ),
    Planted(
        "communication takes the place of data wait",
        "collector/traces/kineto/steps/phases.py",
        " & (phase != DATA_WAIT)",
        "",
        ("tests/unit/traces/test_exposed.py",),
    ),
    Planted(
        "the scatter of runs is that of the sample",
        "profiler_server/analysis/compare/run_statistics.py",
        "ratios.std(ddof=1)",
        "ratios.std(ddof=0)",
        ("tests/unit/analysis/compare/test_run_statistics.py",),
    ),
    Planted(
        "throughput counts the warm-up",
        "profiler_server/analysis/steps/step_figures.py",
        "kept = select_steps(steps).kept\n    train = train_steps(steps)",
        "kept = slice(None)\n    train = train_steps(steps)",
        ("tests/unit/format/test_steps.py",),
    ),
    Planted(
        "a finding is high from 40 % on",
        "profiler_server/diagnosis/limits/verdict.py",
        "HIGH_GAIN_FRAC = 0.20",
        "HIGH_GAIN_FRAC = 0.40",
        ("tests/unit/diagnosis/test_limits.py",),
    ),
    Planted(
        "a half has four bytes",
        "collector/format/words.py",
        '("half", 2)',
        '("half", 4)',
        ("tests/unit/format/test_element_bytes.py",),
    ),
    Planted(
        "the depth of the workers' queue lies among that of the pinned batches",
        "collector/ring/packing.py",
        "worker_depth << 12",
        "worker_depth << 11",
        ("tests/unit/ring/test_packing.py",),
    ),
    Planted(
        "a step is bound by a part from 20 % on",
        "profiler_server/diagnosis/limits/verdict.py",
        "BOUND_FRAC = 0.10",
        "BOUND_FRAC = 0.20",
        ("tests/unit/diagnosis/test_limits.py",),
    ),
    Planted(
        "figures of a filter of steps are kept as those of the rank",
        "collector/format/rank.py",
        "return str(self.folder), self.lens",
        "return str(self.folder), Lens()",
        ("tests/unit/format/test_lens.py",),
    ),
    Planted(
        "the ideal job communicates as slowly as the mean of its ranks",
        "profiler_server/analysis/what_if/replay.py",
        "np.median if kind in _COMMUNICATION else np.mean",
        "np.mean",
        ("tests/unit/analysis/what_if/test_stragglers.py",),
    ),
)
"""Mistakes of a kind that shows a wrong figure without an error. `python -m tests.mutation --planted` tries them all."""
