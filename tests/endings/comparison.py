"""The trials of a cell against each other: what recorded ones show that bare ones do not, and how much later they end."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields

from tests.endings.cells import Cell
from tests.endings.forms import Form, build_form, find_our_frames, name_files
from tests.endings.trial import Trial

LATER_MEDIAN_S = 2.0
LATER_WORST_S = 10.0
CHANCE = 0.05
"""A form that bare trials show, too, differs where it would come so much more often in fewer than 1 of 20 series."""


@dataclass(frozen=True)
class Limits:
    """How much later recorded trials may end; None where the machine is loaded by others."""

    median_s: float | None = LATER_MEDIAN_S
    worst_s: float | None = LATER_WORST_S


@dataclass(frozen=True)
class Result:
    """A cell and its trials. `differences` is empty where recorded ones end as bare ones."""

    cell: Cell
    bare: tuple[Trial, ...]
    recorded: tuple[Trial, ...]
    differences: tuple[str, ...]


def compare(cell: Cell, bare: Sequence[Trial], recorded: Sequence[Trial], limits: Limits | None = None) -> Result:
    """Return what differs, one sentence each."""
    differences = [
        *_compare_forms(cell, bare, recorded),
        *(f"a traceback shows {line}" for line in sorted({line for one in recorded for line in find_our_frames(one)})),
        *(f"left behind: {text}" for text in sorted({text for one in recorded for text in one.left})),
        *_compare_files(bare, recorded),
        *_compare_times(bare, recorded, limits or Limits()),
    ]
    return Result(cell, tuple(bare), tuple(recorded), tuple(differences))


def has_unseen(cell: Cell, bare: Sequence[Trial], recorded: Sequence[Trial]) -> bool:
    """Say whether a recorded trial has a form that no bare one has: one more bare trial may have it."""
    known = {build_form(cell, one) for one in bare}
    return any(build_form(cell, one) not in known for one in recorded)


def _compare_forms(cell: Cell, bare: Sequence[Trial], recorded: Sequence[Trial]) -> list[str]:
    known = Counter(build_form(cell, one) for one in bare)
    seen = Counter(build_form(cell, one) for one in recorded)
    usual = known.most_common(1)[0][0]
    texts = []
    for form, count in seen.items():
        if form not in known:
            texts.append(f"{count} of {len(recorded)}: {describe_difference(usual, form)}")
        elif form != usual and _is_more(count, len(recorded), known[form], len(bare)):
            texts.append(
                f"{count} of {len(recorded)}, bare {known[form]} of {len(bare)}: {describe_difference(usual, form)}"
            )
    return texts


def _is_more(recorded: int, of_recorded: int, bare: int, of_bare: int) -> bool:
    """Say whether `recorded` of so many is more than chance allows where `bare` of so many are known (Fisher's test)."""
    both, total = recorded + bare, of_recorded + of_bare
    as_many = range(recorded, min(both, of_recorded) + 1)
    ways = sum(math.comb(of_recorded, count) * math.comb(of_bare, both - count) for count in as_many)
    return ways / math.comb(total, both) < CHANCE


def describe_difference(bare: Form, recorded: Form) -> str:
    """Name what of two forms differs, with the first lines that only one of them has."""
    if not recorded.has_ended:
        return "it does not end"
    texts = []
    for part in fields(Form):
        expected, found = getattr(bare, part.name), getattr(recorded, part.name)
        if expected == found:
            continue
        if isinstance(found, tuple):
            lost, added = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
            lines = [f"- {one}" for one in lost] + [f"+ {one}" for one in added]
            texts.append(f"{part.name}: {'; '.join(lines[:6]) or 'in another order'}")
        else:
            texts.append(f"{part.name} {found} instead of {expected}")
    return ", ".join(texts)


def _compare_files(bare: Sequence[Trial], recorded: Sequence[Trial]) -> list[str]:
    known = frozenset().union(*(name_files(one) for one in bare))
    added = frozenset().union(*(name_files(one) for one in recorded)) - known
    return [f"a file outside of the run: {name}" for name in sorted(added)]


def _compare_times(bare: Sequence[Trial], recorded: Sequence[Trial], limits: Limits) -> list[str]:
    usual, ended = list_ends(bare), list_ends(recorded)
    if not usual or not ended:
        return []
    texts = []
    later = statistics.median(ended) - statistics.median(usual)
    if limits.median_s is not None and later > limits.median_s:
        texts.append(f"ends {later:.1f} s later (median)")
    latest = max(ended) - max(usual)
    if limits.worst_s is not None and latest > limits.worst_s:
        texts.append(f"ends {latest:.1f} s later (worst)")
    return texts


def list_ends(trials: Sequence[Trial]) -> list[float]:
    return [one.end_s for one in trials if one.end_s is not None]
