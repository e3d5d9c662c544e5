"""What is mutated, which tests must notice, and changes that no operator makes by itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Room:
    """`files` and `tests` are paths from the repository's root."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Planted:
    """A change by hand: a piece of text that stands in the file once, and what takes its place."""

    file: str
    old: str
    new: str


_FORMULAS = ("attention", "convolution", "elementwise", "embedding", "matmul", "normalization", "optimizer")
ROOMS = {
    "steps": Room(
        ("collector/format/steps.py",), ("tests/unit/format/test_steps.py", "tests/unit/format/test_step_choice.py")
    ),
    "intervals": Room(("collector/format/intervals.py",), ("tests/unit/format/test_intervals.py",)),
    "noise": Room(("collector/format/noise.py",), ("tests/unit/format/test_noise.py",)),
    "lens": Room(("collector/format/lens.py",), ("tests/unit/format/test_lens.py",)),
    "ring": Room(("collector/ring/words.py", "collector/ring/records.py"), ("tests/unit/ring",)),
    "codes": Room(
        ("collector/ring/codes.py", "collector/format/requests.py"),
        ("tests/unit/ring", "tests/unit/format/test_requests.py", "tests/unit/sidecar/test_steady.py"),
    ),
    "formulas": Room(
        tuple(f"collector/traces/formulas/{name}.py" for name in _FORMULAS), ("tests/unit/traces/test_flops.py",)
    ),
    "calls": Room(
        ("collector/traces/call.py",),
        ("tests/unit/traces/test_flops.py", "tests/unit/traces/test_element_bytes.py"),
    ),
    "exposed": Room(
        ("collector/traces/kineto/exposed.py",),
        ("tests/unit/traces/test_exposed.py", "tests/unit/traces/test_reading.py"),
    ),
    "device": Room(
        tuple(
            f"profiler_server/analysis/device/{name}.py"
            for name in ("device", "executions", "launches", "precision", "slices")
        ),
        ("tests/unit/analysis/device",),
    ),
    "roofline": Room(
        ("profiler_server/analysis/operators/roofline.py",), ("tests/unit/analysis/operators/test_roofline.py",)
    ),
    "outliers": Room(
        ("profiler_server/analysis/steps/outliers.py", "profiler_server/analysis/steps/throughput.py"),
        ("tests/unit/analysis/steps", "tests/unit/format/test_step_choice.py"),
    ),
    "gate": Room(("profiler_server/analysis/compare/run_statistics.py",), ("tests/unit/analysis/compare",)),
    "benchmark": Room(
        (
            "collector/launch/benchmark/figures.py",
            "collector/launch/benchmark/calls.py",
            "collector/launch/benchmark/comparison.py",
        ),
        ("tests/unit/launch/test_figures.py", "tests/unit/launch/test_comparison.py"),
    ),
    "limits": Room(("profiler_server/diagnosis/limits.py",), ("tests/unit/diagnosis",)),
    "machine": Room(
        ("collector/sidecar/machine.py",), ("tests/unit/sidecar/test_classify.py", "tests/unit/sidecar/test_steady.py")
    ),
}
PLANTED = (
    Planted("collector/sidecar/machine.py", "codes.ZERO_START: OPTIMIZER", "codes.ZERO_START: TAIL"),
    Planted("collector/traces/kineto/exposed.py", " & (phase != _WAIT)", ""),
    Planted(
        "profiler_server/analysis/steps/throughput.py",
        "kept = select_steps(steps).kept",
        "kept = slice(None)",
    ),
)
