"""What is planted in each script of `scripts/`: known here only, never to what is analysed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Case:
    """One script. `cause` is empty where nothing is planted.

    `accept` are the rules that name the cause rightly. `stage` is the stage of the data pipeline that carries the plant.
    The twin that must stay silent is the same script with `--fixed`.
    """

    script: str
    cause: str
    accept: frozenset[str]
    stage: str = ""
    steps: int = 120

    @property
    def path(self) -> Path:
        return SCRIPTS / f"{self.script}.py"


CASES: tuple[Case, ...] = (
    Case("birds", "no_workers", frozenset({"no_workers", "slow_read"}), stage="read"),
    Case("leaves", "slow_transform", frozenset({"slow_transform", "workers_capped_by_cores"}), stage="transform"),
    Case("maps", "slow_read", frozenset({"slow_read", "repeated_decode"}), stage="read"),
    Case("letters", "slow_collate", frozenset({"slow_collate"}), stage="collate"),
    Case("clouds", "too_few_workers", frozenset({"too_few_workers", "slow_read"}), stage="read"),
    Case("coins", "worker_restart", frozenset({"worker_restart", "slow_start"})),
    Case("stars", "", frozenset()),
)
