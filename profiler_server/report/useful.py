"""Lines of the report on the time to the first step, on useful tokens, and on the utilisation of the device."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from collector.edge import attempt
from collector.format.rank import read_step_rows
from collector.format.run import RankRun
from profiler_server.analysis.operators.mfu import measure_mfu
from profiler_server.analysis.steps.start_up import measure_start_up
from profiler_server.analysis.steps.step_figures import measure_throughput
from profiler_server.analysis.steps.tokens import measure_tokens
from profiler_server.diagnosis.start_sentences import say_start_up
from profiler_server.diagnosis.use_sentences import say_tokens, say_use
from profiler_server.format import format_share


def list_useful_lines(rank: RankRun, steps: pa.Table, noun: str) -> Iterator[str]:
    """Yield the lines that are known. Why the utilisation is unknown is said where a device was in use."""
    if (start := attempt(lambda: measure_start_up(rank))) is not None:
        yield f"  first {noun}  {say_start_up(start)}"
    if (tokens := attempt(lambda: measure_tokens(rank, steps))) is not None:
        yield f"  tokens    {say_tokens(tokens, noun)}"
    use = attempt(lambda: measure_mfu(rank))
    if use is not None and (use.frac is not None or use.device):
        yield f"  MFU       {'unknown' if use.frac is None else format_share(use.frac)}: {say_use(use, noun)}"


def measure_use(rank: RankRun) -> dict[str, float]:
    """Return the same figures for a tracker, without those that are unknown. Raises as `RankRun.table` does."""
    steps = read_step_rows(rank).steps
    tokens, use, start = measure_tokens(rank, steps), measure_mfu(rank), measure_start_up(rank)
    found: dict[str, float | None] = {"samples_per_second": measure_throughput(steps)}
    if tokens is not None:
        found |= {"tokens_per_second": tokens.per_s, "useful_tokens_per_second": tokens.real_per_s}
        found |= {"useful_token_ratio": tokens.real_frac}
    found["mfu"] = use.frac if use is not None else None
    found["first_step_seconds"] = start.total_ns / 1e9 if start is not None else None
    return {name: value for name, value in found.items() if value is not None}
