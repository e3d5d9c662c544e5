"""A process finds its rank by what its launcher says, whichever launcher it is."""

from __future__ import annotations

import pytest

from collector.environment import find_rank

NAMES = (
    "RANK",
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "LOCAL_RANK",
)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "16"}, (5, 16)),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        ({"WORLD_SIZE": "4"}, (0, 4)),
        ({"RANK": "no number"}, (0, 1)),
    ],
)
def test_rank_is_found(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: tuple[int, int]) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert find_rank() == expected
