"""What is planted in each script of `scripts/`: known here only, never to what is analysed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from profiler_server.facts.results import Suggestion

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Case:
    """One script. `cause` is empty where nothing is planted.

    `accept` are the rules that name the cause rightly. `stage` is the stage of the data pipeline that carries the plant.
    The twin that must stay silent is the same script with `--fixed`; a healthy script is its own twin.
    """

    script: str
    cause: str
    accept: frozenset[str]
    stage: str = ""
    steps: int = 100

    @property
    def path(self) -> Path:
        return SCRIPTS / f"{self.script}.py"


def follow(suggestion: Suggestion) -> tuple[str, ...]:
    """Return the arguments that make of a script what the suggestion says, with the numbers that it gives."""
    if suggestion.rule in EASED:
        return ("--ease", EASED[suggestion.rule])
    given = [
        (argument, match[1])
        for argument, name in (("--workers", "num_workers"), ("--prefetch", "prefetch_factor"))
        if (match := re.search(rf"{name}=(\d+),  # was", suggestion.change))
    ]
    unordered = ("--unordered",) if "in_order=False" in suggestion.change else ()
    return (*(word for pair in given for word in pair), *unordered) or ("--fixed",)


EASED = {"slow_read": "0.5", "slow_transform": "0.5", "periodic_stall": "0.25"}
"""Part of the planted work that is left by what these rules assume. What others suggest is a number, or what the fixed
form does."""

HEALTHY = frozenset[str]()

CASES: tuple[Case, ...] = (
    Case("birds", "no_workers", frozenset({"no_workers", "slow_read"}), stage="read"),
    Case("leaves", "slow_transform", frozenset({"slow_transform", "workers_capped_by_cores"}), stage="transform"),
    Case("maps", "slow_read", frozenset({"slow_read", "repeated_decode"}), stage="read"),
    Case("letters", "slow_collate", frozenset({"slow_collate"}), stage="collate"),
    Case("clouds", "too_few_workers", frozenset({"too_few_workers", "slow_read"}), stage="read"),
    Case("coins", "worker_restart", frozenset({"worker_restart", "slow_start"})),
    Case(
        "rivers",
        "workers_capped_by_cores",
        frozenset({"workers_capped_by_cores", "slow_transform", "oversubscribed_workers"}),
        stage="transform",
    ),
    Case("tides", "threads_over_cores", frozenset({"threads_over_cores"})),
    Case("hills", "optimizer_loop", frozenset({"optimizer_loop"})),
    Case("words", "gc_pauses", frozenset({"gc_pauses"})),
    Case("bells", "periodic_stall", frozenset({"periodic_stall", "checkpoint_stall"})),
    Case("hares", "validation_share", frozenset({"validation_share"})),
    Case("seeds", "uneven_samples", frozenset({"uneven_samples", "shallow_prefetch"}), stage="read"),
    Case("shells", "shallow_prefetch", frozenset({"shallow_prefetch", "uneven_samples"}), stage="read"),
    Case("stones", "in_memory_fetch", frozenset({"in_memory_fetch"})),
    Case("winds", "python_gap", frozenset({"python_gap"})),
    Case("stars", "", HEALTHY),
    Case("trees", "", HEALTHY),
    Case("bees", "", HEALTHY),
)
