"""The request for a page, and notices for sections of pages that have nothing to show."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from collector.format.lens import StepRange
from collector.format.rank import read_step_rows
from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError
from collector.format.schema.facts import UNTOLD
from collector.format.steps import StepRows, train_steps
from profiler_server.derive.derived import NotReady
from profiler_server.notice import Notice as Notice
from profiler_server.notice import Page as Page

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class PageRequest:
    """The input of a page. `query` is the query of the URL; its size and its number of entries have been checked."""

    run: Run
    run_id: str
    rank: int
    ranks: tuple[int, ...]
    query: Mapping[str, str]
    steps: StepRange | None = None
    """The step filter of the pages, None for all steps. It overlaps the recorded steps of the rank."""

    @property
    def rank_run(self) -> RankRun:
        return self.run.rank(self.rank)

    @property
    def chosen_steps(self) -> RankRun:
        """Return the rank with only the steps of the filter in its tables."""
        return self.rank_run.through(self.steps)


def explain_absence(rank: RankRun, table: str, title: str, remedy: str = "") -> Notice | None:
    """Return a notice on why a table of a rank cannot be shown; None if it can be shown.

    `title` and `remedy` are for a table that is missing, empty or switched off. Raises TableMissingError,
    TableBrokenError or NewerSchemaError if the manifest of the rank cannot be read.
    """
    status = rank.status(table)
    if status.state == "there":
        return None
    if status.state in ("failed", "broken"):
        return Notice("failed", f"The {table} cannot be read", status.reason)
    lack = explain_import(rank, table)
    if lack is not None:
        return lack
    bare = (f"This run has no {table} table.", f"The {table} table is empty.")
    reason = explain_nothing(rank, table) or status.reason if status.reason in bare else status.reason
    remedy = choose_remedy(rank, table, remedy) if remedy else ""
    return Notice("off" if status.state in ("off", "missing") else "empty", title, reason, remedy)


def read_steps(rank: RankRun, title: str) -> StepRows | Notice:
    """Return the steps of a rank; or a notice with this title if the rank has none. Raises as `RankRun.table` does.

    The notice advises on recording, unless the training was ended before its first step.
    """
    was_ended = rank.state == "crashed" or rank.manifest.facts.get("ended_by", UNTOLD) != UNTOLD
    remedy = "" if was_ended else RECORD_REMEDY
    absence = explain_absence(rank, "steps", title, remedy)
    if absence is not None:
        return absence
    rows = read_step_rows(rank)
    return rows if train_steps(rows.steps).num_rows else Notice("empty", title, _NOTHING["steps"], remedy)


def choose_remedy(rank: RankRun, table: str, remedy: str) -> str:
    """Return the code that makes the next run of the user record the table; "" if no code would help.

    `remedy` is the code that switches the table's option on. If detailed windows were already on, the code for an
    earlier window is returned instead.
    """
    if table in _OPTIONAL:
        return remedy if rank.status(table).state == "off" and not rank.manifest.is_trace else ""
    window = next((signal for signal in rank.manifest.signals if signal.name == "window"), None)
    if table not in _IN_DETAIL or window is None or window.state == "off" or _is_off(rank, table):
        return remedy
    return EARLIER_REMEDY


def _is_off(rank: RankRun, table: str) -> bool:
    return any(signal.name == table and signal.state == "off" for signal in rank.manifest.signals)


def explain_nothing(rank: RankRun, table: str) -> str:
    """Return why a table was never written or has no row; "" if the reason is not one of those known here."""
    manifest = rank.manifest
    if manifest.is_trace and table in _OPTIONAL:
        return _NEVER_IN_TRACE
    ended_ns = manifest.ended_unix_ns
    if table == "resources" and ended_ns is not None and ended_ns - manifest.started_unix_ns < _SHORT_NS:
        return "The run was too short for a sample of the machine: one is taken every 0.5 s."
    return _NOTHING.get(table, "")


def explain_import(rank: RankRun, table: str) -> Notice | None:
    """Return a notice on why an imported trace lacks a table that its profiler could have recorded, with the remedy.

    None for a run that Stepscope recorded, and for a table that no trace can fill.
    """
    return _NOT_IN_TRACE.get(table) if rank.state == "imported" and rank.manifest.is_trace else None


_RECORD_BOTH = "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
_NOT_IN_TRACE = {
    "operators": Notice(
        "empty",
        "No operators in this trace",
        "The trace holds no operator of the host: the profiler was not asked to record the processor.",
        _RECORD_BOTH,
    ),
    "kernels": Notice(
        "empty",
        "No kernels in this trace",
        "The trace holds no kernel: no device was used, or the profiler was not asked to record it.",
        _RECORD_BOTH,
    ),
    "memory": Notice(
        "off",
        "Allocations were not recorded",
        "The trace holds no allocation: the profiler was not asked to record memory.",
        "profile(profile_memory=True)",
    ),
}

RECORD_REMEDY = 'from stepscope import Profiler\n\nwith Profiler("runs/my-run"):\n    train()'
DATA_REMEDY = 'Profiler("runs/my-run", data_pipeline=True)'
WINDOW_REMEDY = 'Profiler("runs/my-run", window=(10, 3))  # three steps from step 10'
EARLIER_REMEDY = 'Profiler("runs/my-run", window=(2, 3))  # an earlier window: three steps from step 2'
_IN_DETAIL = ("operators", "slices", "kernels", "memory")
"""Tables that detailed windows fill."""
_OPTIONAL = ("resources", "queues", "stages")
"""Tables of options that are on by default."""
_SHORT_NS = 2_000_000_000
_NEVER_IN_TRACE = "A trace cannot hold this; a run that Stepscope records does."
_IN_WINDOWS = "recorded in detailed windows of a few steps, and this run holds none"
_NOTHING = {
    "steps": "No training step and no evaluation batch was recorded: nothing called an optimizer or a model.",
    "slices": f"Operators and kernels are {_IN_WINDOWS}.",
    "operators": f"Operators are {_IN_WINDOWS}.",
    "kernels": f"Kernels are {_IN_WINDOWS}.",
    "memory": f"Allocations are {_IN_WINDOWS} with memory=True.",
    "resources": "Nothing sampled the machine while this run was recorded.",
    "queues": "No queue of a DataLoader or of your own was watched in this run.",
    "stages": "No DataLoader and no stage of your own was used in this run.",
}
"""The text for a table that was never written or has no row."""


def explain_delay(delay: NotReady) -> Notice:
    """Return a notice for a result that is not ready: it is still being computed, or it is too large to compute."""
    return (
        Notice("pending", "Being computed …", delay.reason)
        if delay.pending
        else Notice("off", "Too large", delay.reason)
    )


def build_part(title: str, make: Callable[[], T | Notice | NotReady]) -> tuple[T | None, Notice | None]:
    """Return one section of a page and None. If `make` fails, is not ready, or has nothing to show, return None and a
    notice, so that the remaining sections are shown.
    """
    try:
        made = make()
    except RunError as error:
        return None, Notice("failed", title, str(error))
    except Exception as error:  # One part that fails in any way must leave the others readable.
        log.exception("%s", title)
        return None, Notice("failed", title, f"{type(error).__name__}: {error}")
    if isinstance(made, NotReady):
        return None, explain_delay(made)
    return (None, made) if isinstance(made, Notice) else (made, None)
