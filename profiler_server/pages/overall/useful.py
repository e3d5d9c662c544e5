"""Figures on what of a step is useful: tokens that are no padding, and the utilisation of the device. Each is left out
where it is unknown."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from collector.format.run import RankRun
from profiler_server.analysis.operators.mfu import measure_mfu
from profiler_server.analysis.steps.tokens import measure_tokens
from profiler_server.diagnosis.use_sentences import say_tokens, say_use
from profiler_server.format import format_share
from profiler_server.page import build_part
from profiler_server.widgets import Stat


def list_useful_stats(rank: RankRun, steps: pa.Table, noun: str) -> Iterator[Stat]:
    tokens, _ = build_part("The tokens cannot be counted", lambda: measure_tokens(rank, steps))
    if tokens is not None:
        yield Stat("Useful tokens", format_share(tokens.real_frac), say_tokens(tokens, noun), None)
    use, _ = build_part("The utilisation cannot be read", lambda: measure_mfu(rank))
    if use is not None and use.frac is not None:
        yield Stat("MFU", format_share(use.frac), say_use(use, noun), "operators")
