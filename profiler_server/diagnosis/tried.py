"""Gains that `stepscope run --try` measured. They replace the figures of a suggestion whose change was tried on the same
script.

Trials lie beside the runs of the script, or in the folder of a run. Others may have written these files, so odd values
are skipped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from collector.format.attempts import find_home, read_run_manifest
from collector.format.run import Run
from collector.format.schema.reading import read_small_file
from profiler_server.diagnosis.knobs import PROMISED
from profiler_server.facts.results import Suggestion
from profiler_server.format import say

RESULTS_FILE, FIRST_FOLDER = "tried.json", "as-it-is"
_MOST_FOLDERS = 1_000
_Share = Annotated[float, Meta(ge=-1000.0, le=1.0)]


class _Entry(msgspec.Struct):
    """A change that was tried, and its gain with bounds, as shares of the step; None if it was not measured."""

    change: dict[str, Any]
    changes: list[str]
    runs: Annotated[int, Meta(ge=0, le=10_000)]
    gain_frac: _Share | None
    low_frac: _Share | None
    high_frac: _Share | None


class _Results(msgspec.Struct):
    tried: list[_Entry]


@dataclass(frozen=True)
class Trial:
    """The measured gain of one change, with its bounds, as shares of the step. A negative gain means a longer step."""

    gain_frac: float
    low_frac: float
    high_frac: float
    runs: int

    @property
    def sentence(self) -> str:
        kind = "gained" if self.gain_frac > 0 else "lost"
        shares = sorted((abs(self.low_frac), abs(self.high_frac)))
        if self.low_frac <= 0.0 <= self.high_frac:
            kind, shares = "unsure", [self.low_frac, self.high_frac]
        return say("tried", kind, trial=self, gain_frac=abs(self.gain_frac), low_frac=shares[0], high_frac=shares[1])


def find_trials(run: Run, suggestions: Sequence[Suggestion]) -> dict[str, Trial]:
    """Return the latest trial of each change that a suggestion proposes, by the rule of the suggestion."""
    if not suggestions or run.redactor is not None or not run.manifest.script:
        return {}
    found: dict[str, Trial] = {}
    for entries in _list_results(run):
        for entry in entries:
            if len(entry.changes) != 1 or entry.gain_frac is None or entry.low_frac is None or entry.high_frac is None:
                continue
            trial = Trial(entry.gain_frac, entry.low_frac, entry.high_frac, entry.runs)
            found |= {each.rule: trial for each in suggestions if _asks_for(each, entry.change)}
    return found


def _asks_for(suggestion: Suggestion, change: Mapping[str, Any]) -> bool:
    settings = {f"loader.{name}": value for name, value in suggestion.settings.items()}
    wanted = settings or PROMISED.get(suggestion.rule, {})
    return bool(wanted) and all(change.get(name) == value for name, value in wanted.items())


def _list_results(run: Run) -> Iterator[list[_Entry]]:
    """Yield the changes tried on the run's script and machine, one list per results file, the oldest file first."""
    home = find_home(run.path.absolute())
    dated = []
    for folder in (*_list_folders(home.parent), *_list_folders(home)):
        first = read_run_manifest(folder / FIRST_FOLDER) if (folder / RESULTS_FILE).is_file() else None
        if first is None or folder.is_symlink():
            continue
        if (first.script, first.host) == (run.manifest.script, run.manifest.host):
            dated.append((first.created_unix_ns, folder / RESULTS_FILE))
    for _, path in sorted(dated):
        with contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError):
            yield msgspec.json.decode(read_small_file(path), type=_Results).tried


def _list_folders(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(islice(folder.iterdir(), _MOST_FOLDERS))
    return []
