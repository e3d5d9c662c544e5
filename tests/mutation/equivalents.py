"""Mutants that no test can notice, each with the reason. They are left out of the score."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutation.mutants import Mutant


@dataclass(frozen=True)
class Equivalent:
    """`line` is the changed line as the mutant has it, without the spaces around it."""

    file: str
    line: str
    reason: str


_LENGTHS = "The columns of one table are equally long."
_THREADS = "Threads change the order of the groups at most, and whether they do differs from run to run."
_CHANCE = "What is no change is left out: by how much it misses the limit is told nowhere."
_INTERVALS = "collector/format/intervals.py"
_ROOFLINE = "profiler_server/analysis/operators/roofline.py"
_STATISTICS = "profiler_server/analysis/compare/run_statistics.py"

EQUIVALENTS: tuple[Equivalent, ...] = (
    Equivalent(
        _INTERVALS,
        "_EARLIEST, _LATEST = np.int64(-((2) << 62)), np.int64(1 << 62)",
        "It is earlier still: no time lies before either.",
    ),
    Equivalent(
        _INTERVALS,
        "starts, ends = starts[solid].astype(np.int64, copy=(True)), ends[solid].astype(np.int64, copy=False)",
        "A copy holds the same numbers.",
    ),
    Equivalent(
        _INTERVALS,
        "starts, ends = starts[solid].astype(np.int64, copy=False), ends[solid].astype(np.int64, copy=(True))",
        "A copy holds the same numbers.",
    ),
    Equivalent(
        _INTERVALS,
        "if ((starts[1:] <= starts[:-1])).any():  # slices come sorted: millions need no second sort",
        "Sorting what is sorted already, stably, changes nothing.",
    ),
    Equivalent(
        _ROOFLINE,
        'for name, dtypes in zip(known["name"].to_pylist(), known["input_dtypes"].to_pylist(), strict=(False))',
        _LENGTHS,
    ),
    Equivalent(
        _ROOFLINE,
        'summed = plain.group_by(list(KEYS), use_threads=(True)).aggregate([(name, "sum") for name in measures])',
        _THREADS,
    ),
    Equivalent(
        _ROOFLINE,
        "rows = zip(*(kernels[name].to_pylist() for name in kernels.column_names), strict=(False))",
        _LENGTHS,
    ),
    Equivalent(
        _ROOFLINE,
        'busy = kernels.group_by("device", use_threads=(True)).aggregate([("total_ns", "sum")])',
        _THREADS,
    ),
    *(
        Equivalent(
            _STATISTICS,
            "freedom = sum(parts) ** 2 / (parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1)) "
            f"if error else ({freedom})",
            "Without an error nothing is asked of the degrees of freedom.",
        )
        for freedom in ("0.0", "2.0")
    ),
    Equivalent(_STATISTICS, "return (2.0)", _CHANCE),
    Equivalent(_STATISTICS, "return (2.0) if change == 0.0 else 0.0", _CHANCE),
    Equivalent(
        _STATISTICS,
        "if len(values) < (3) or not values.std():",
        "Half of three steps is one, and so is their longest block.",
    ),
)


def find_equivalent(mutant: Mutant) -> Equivalent | None:
    """Return why no test can notice a mutant, None where one should."""
    return next((entry for entry in EQUIVALENTS if (entry.file, entry.line) == (mutant.path, read_line(mutant))), None)


def read_line(mutant: Mutant) -> str:
    """Return the changed line without the spaces around it."""
    return mutant.source.splitlines()[mutant.line - 1].strip()
