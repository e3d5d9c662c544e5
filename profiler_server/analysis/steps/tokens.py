"""Tokens per second, with and without padding, from the batches of the few steps that were examined."""

from __future__ import annotations

import pyarrow as pa

from collector.format.run import RankRun
from profiler_server.analysis.recorded_facts import read_model_calls
from profiler_server.analysis.steps.step_figures import measure_throughput
from profiler_server.facts.useful import TokenRate

_LOADER = "DataLoader"


def measure_tokens(rank: RankRun, steps: pa.Table) -> TokenRate | None:
    """Return the rate of tokens over the steady steps of `steps`; None if no batch had tensors of known names.

    Of several places, the loader's batches count, since the samples per second are its; else those with most tokens.
    """
    calls = [found for found in read_model_calls(rank.manifest.facts) if found.token_rows and found.tokens]
    if not calls:
        return None
    most = max(calls, key=lambda found: (found.model == _LOADER, found.tokens))
    real = min(most.real, most.tokens)
    trained = most.trained if 0 <= most.trained <= most.tokens else None
    per_sample, samples_per_s = most.tokens / most.token_rows, measure_throughput(steps)
    per_s = None if samples_per_s is None else samples_per_s * per_sample
    return TokenRate(
        most.model,
        most.place,
        most.looks,
        real / most.tokens,
        None if trained is None else trained / most.tokens,
        per_sample,
        per_s,
        None if per_s is None else per_s * real / most.tokens,
    )
