"""The Data pipeline page: the depth of the queues at each step, and the work of the stages that fill these queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collector.format.run import RankRun
from collector.format.schema.errors import OptionError, RunError
from profiler_server.analysis.data.stages import find_loader
from profiler_server.analysis.selection import choose_workers, spell_numbers
from profiler_server.format import shorten_middle
from profiler_server.page import DATA_REMEDY, Notice, Page, PageRequest, choose_remedy
from profiler_server.pages.data.facts import PipelineFacts
from profiler_server.pages.data.interval import IntervalView, build_interval
from profiler_server.pages.data.processing import ProcessingView, build_processing
from profiler_server.widgets import Link

TABS: Mapping[str, str] = {"interval": "Step interval", "processing": "Data processing"}


@dataclass(frozen=True)
class DataContext:
    """The context of `data.html`: `interval` or `processing` is the content of the open tab. `kept` are the query
    values that links keep. With a `notice`, both contents are None. If only the pipeline was not collected, the tab
    Step interval still shows the waits of the steps.
    """

    tabs: tuple[Link, ...]
    loaders: tuple[Link, ...]
    problems: tuple[str, ...]
    notice: Notice | None
    interval: IntervalView | None
    processing: ProcessingView | None
    kept: Mapping[str, str]


def build(request: PageRequest) -> DataContext:
    """Build the page. If a table of the rank cannot be read, a notice gives the reason."""
    query = request.query
    problems: list[str] = []
    tab = query.get("tab", "interval")
    if tab not in TABS:
        problems.append(f"tab={tab[:40]} is none of {', '.join(TABS)}; the step interval is shown.")
        tab = "interval"
    try:
        rank = request.chosen_steps
        notice = _find_notice(rank)
        loader = _choose_loader(rank, query.get("loader", ""), problems)
        kept = {"loader": str(loader)} if loader is not None and "loader" in query else {}
        workers = _choose_workers(rank, query.get("workers", ""), problems)
        if workers is not None:
            kept["workers"] = spell_numbers(workers)
        facts = PipelineFacts(rank, loader, workers)
        show_waits = tab == "interval" and (notice is None or notice.state == "off")
        return DataContext(
            tabs=_list_tabs(tab, kept, facts.noun),
            loaders=_list_loaders(rank, loader, tab),
            problems=tuple(problems),
            notice=notice,
            interval=build_interval(facts, notice is None)
            if show_waits and (notice is None or rank.status("steps").state == "there")
            else None,
            processing=build_processing(facts, query.get("queue", ""))
            if notice is None and tab == "processing"
            else None,
            kept=kept,
        )
    except RunError as error:
        notice = Notice("failed", "The data pipeline cannot be read", str(error))
        return DataContext(_list_tabs(tab, {}), (), tuple(problems), notice, None, None, {})


def _find_notice(rank: RankRun) -> Notice | None:
    """Return a notice if nothing can be shown, else None. A run without workers has no queues, but can be shown."""
    for table in ("queues", "stages", "steps"):
        status = rank.status(table)
        if status.state == "off":
            reason = status.reason or "The option data_pipeline of the Profiler was off."
            return Notice("off", "The data pipeline was not collected", reason, choose_remedy(rank, table, DATA_REMEDY))
        if status.state in ("failed", "broken"):
            return Notice("failed", "The data pipeline cannot be shown", status.reason)
    own = any(rank.status(table).state == "there" for table in ("stages", "queues"))
    if rank.status("steps").state != "there" and not own:
        return Notice("empty", "No step was recorded yet", "The page fills with the first step.")
    return None


def _choose_loader(rank: RankRun, text: str, problems: list[str]) -> int | None:
    known = {str(entry.id): entry.id for entry in rank.manifest.loaders}
    if text in known:
        return known[text]
    if text:
        problems.append(f"loader={text[:40]} is no DataLoader of this run; the one that fed the steps is shown.")
    return find_loader(rank)


def _choose_workers(rank: RankRun, text: str, problems: list[str]) -> frozenset[int] | None:
    try:
        return choose_workers((rank,), text)
    except OptionError as error:
        problems.append(f"{error}. All workers are shown.")
        return None


def _list_tabs(tab: str, kept: Mapping[str, str], noun: str = "step") -> tuple[Link, ...]:
    return tuple(
        Link(
            label.replace("Step", noun.capitalize()),
            {**({"tab": name} if name != "interval" else {}), **kept},
            name == tab,
        )
        for name, label in TABS.items()
    )


def _list_loaders(rank: RankRun, chosen: int | None, tab: str) -> tuple[Link, ...]:
    """Return a link for each of the first 20 loaders, such as one for evaluation; empty for a run with one loader."""
    loaders = rank.manifest.loaders
    if len(loaders) < 2:
        return ()
    return tuple(
        Link(
            f"{entry.id}: {shorten_middle(entry.dataset, 32)}",
            {**({"tab": tab} if tab != "interval" else {}), "loader": str(entry.id)},
            entry.id == chosen,
        )
        for entry in loaders[:20]
    )


PAGE = Page(
    slug="data", title="Data pipeline", order=40, key="d", template="data.html", build=build, follows_steps=True
)
