"""What a page is: the contract between `profiler_server/pages/*.py` (plug-ins), the web room and the templates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from collector.format.lens import StepRange
from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError, TableBrokenError
from collector.format.schema.recovery import spell_recovery
from profiler_server.store.cache.disk import NotReady

log = logging.getLogger(__name__)
T = TypeVar("T")
PanelState = Literal["ready", "empty", "off", "failed", "pending"]


@dataclass(frozen=True)
class PageRequest:
    """What a page is built from. `query` is the URL's query, already bounded in size and number."""

    run: Run
    run_id: str
    rank: int
    ranks: tuple[int, ...]
    query: Mapping[str, str]
    steps: StepRange | None = None
    """The filter of the pages, None for all steps. It lies inside of what the rank recorded at least in part."""

    @property
    def rank_run(self) -> RankRun:
        return self.run.rank(self.rank)

    @property
    def chosen_steps(self) -> RankRun:
        """Return the rank seen through the filter; what its tables hold of other steps is not there."""
        return self.rank_run.through(self.steps)


@dataclass(frozen=True)
class Notice:
    """Why a panel shows no data: not collected (`off`), nothing yet (`empty`), being computed (`pending`) or `failed`.

    `remedy` is code or advice.
    """

    state: PanelState
    title: str
    reason: str
    remedy: str = ""


def explain_absence(rank: RankRun, table: str, title: str, remedy: str = "") -> Notice | None:
    """Return why a table of a rank cannot be shown, None if it can. `title` and `remedy` are for one that is not there.

    Raises TableMissingError, TableBrokenError or NewerSchemaError if the rank's own manifest cannot be read.
    """
    status = rank.status(table)
    if status.state == "there":
        return None
    if status.state in ("failed", "broken"):
        return Notice("failed", f"The {table} cannot be read", status.reason, spell_recovery(rank.folder))
    lack = explain_import(rank, table)
    if lack is not None:
        return lack
    bare = (f"This run has no {table} table.", f"The {table} table is empty.")
    reason = _NOTHING.get(table, status.reason) if status.reason in bare else status.reason
    return Notice("off" if status.state in ("off", "missing") else "empty", title, reason, remedy)


def explain_import(rank: RankRun, table: str) -> Notice | None:
    """Return why an imported trace lacks a table that the profiler which wrote it could have filled, and how.

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
"""The text shown where a table was never written, or holds no row."""


def explain_delay(delay: NotReady) -> Notice:
    """Return the notice in the place of a result that is not there yet."""
    return (
        Notice("pending", "Being computed …", delay.reason)
        if delay.pending
        else Notice("off", "Too large", delay.reason)
    )


def build_part(title: str, make: Callable[[], T | Notice | NotReady]) -> tuple[T | None, Notice | None]:
    """Make one part of a page, or a notice in its place: whatever goes wrong in it, the other parts stand."""
    try:
        made = make()
    except RunError as error:
        return None, Notice("failed", title, str(error), find_remedy(error))
    except Exception as error:  # One part that fails in any way must leave the others readable.
        log.exception("%s", title)
        return None, Notice("failed", title, f"{type(error).__name__}: {error}")
    if isinstance(made, NotReady):
        return None, explain_delay(made)
    return (None, made) if isinstance(made, Notice) else (made, None)


def find_remedy(error: RunError) -> str:
    """Return the command that mends what an error tells of, empty if there is none."""
    return error.remedy if isinstance(error, TableBrokenError) else ""


@dataclass(frozen=True)
class Page:
    """One page of a run. A module of `profiler_server/pages` that declares one as PAGE is found; nothing lists it.

    `slug` is the last part of the URL `/runs/{id}/{slug}`, empty for Overall. `key` is the key after `g`.
    `build` returns a frozen dataclass, whose fields are the names that `template` uses, nothing more and nothing less.
    `follows_steps` says that the page shows the steps of the filter only; one that does not says so above.
    """

    slug: str
    title: str
    order: int
    key: str
    template: str
    build: Callable[[PageRequest], Any]
    follows_steps: bool = False
