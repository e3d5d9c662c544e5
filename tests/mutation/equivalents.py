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


EQUIVALENTS: tuple[Equivalent, ...] = ()


def find_equivalent(mutant: Mutant) -> Equivalent | None:
    """Return why no test can notice a mutant, None where one should."""
    return next((entry for entry in EQUIVALENTS if (entry.file, entry.line) == (mutant.path, read_line(mutant))), None)


def read_line(mutant: Mutant) -> str:
    """Return the changed line without the spaces around it."""
    return mutant.source.splitlines()[mutant.line - 1].strip()
