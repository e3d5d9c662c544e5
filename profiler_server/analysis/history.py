"""The histories of a script's runs: runs of one name on equal machines, in time order, with their changes of level."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cached_property

from profiler_server.analysis.change_points import LevelChange, find_level_changes
from profiler_server.store.catalog import find_family
from profiler_server.store.headline import RunEntry


@dataclass(frozen=True)
class Kind:
    """What all runs of a history have in common. `stem` is their name without a number at its end."""

    script: str
    stem: str
    host: str
    device: str
    batch_size: int | None
    world_size: int


@dataclass(frozen=True)
class History:
    """Runs of one kind, in order of recording. Each has steps."""

    kind: Kind
    runs: tuple[RunEntry, ...]

    @cached_property
    def changes(self) -> tuple[LevelChange, ...]:
        """The lasting changes of the runs' median step, in order. `at` is an index in `runs`."""
        return find_level_changes(tuple(run.headline.step_p50_ns or 0.0 for run in self.runs))


def find_kind(run: RunEntry) -> Kind:
    script, stem = find_family(run.manifest.script, run.name)
    setup = run.headline.setup
    return Kind(script, stem, run.manifest.host, setup.device, setup.batch_size, run.manifest.world_size)


def list_histories(newest_first: Sequence[RunEntry]) -> list[History]:
    """Return the histories of all runs, the one with the newest run first.

    Runs without steps are left out, and so are imported traces, because they name no script.
    """
    found: dict[Kind, list[RunEntry]] = {}
    for run in newest_first:
        if run.headline.step_p50_ns and not run.manifest.is_imported:
            found.setdefault(find_kind(run), []).append(run)
    return [History(kind, tuple(runs[::-1])) for kind, runs in found.items()]


def find_run_changes(newest_first: Sequence[RunEntry], shown: Container[str]) -> dict[str, LevelChange]:
    """Return the changes in the histories that contain a run id of `shown`. The keys are the ids of the first run after
    each change. Empty until all runs are read.
    """
    if not all(run.is_read for run in newest_first):
        return {}
    histories = [each for each in list_histories(newest_first) if any(run.id in shown for run in each.runs)]
    return {history.runs[change.at].id: change for history in histories for change in history.changes}


def find_last_change(newest_first: Sequence[RunEntry], run_id: str) -> tuple[str, LevelChange] | None:
    """Return the id of the first run after the latest change up to `run_id`, and this change. None without a change."""
    for history in list_histories(newest_first):
        place = next((at for at, run in enumerate(history.runs) if run.id == run_id), None)
        if place is not None:
            changes = [change for change in history.changes if change.at <= place]
            return (history.runs[changes[-1].at].id, changes[-1]) if changes else None
    return None
