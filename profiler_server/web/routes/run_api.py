"""One run as data."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from collector.format.schema.manifest import RankManifest, RunManifest, RunState
from collector.format.schema.tables import TABLES
from profiler_server.derive.stamps import shorten_stamp, stamp_rank
from profiler_server.web.answers import send_json
from profiler_server.web.parameters import Rank, RankOf, RunId
from profiler_server.web.services import ServicesOf

ROUTER = APIRouter(prefix="/api/v1/runs", tags=["runs"])


@dataclass(frozen=True)
class TableItem:
    """Whether a table is there, and if not, why."""

    name: str
    state: str
    reason: str


@dataclass(frozen=True)
class RankItem:
    """One rank and its tables; `problem` says why the rest is empty when its manifest cannot be read."""

    rank: int
    state: RunState
    manifest: RankManifest | None
    tables: tuple[TableItem, ...]
    problem: str = ""


@dataclass(frozen=True)
class RunDetail:
    """A run, and one of its ranks; `rank` is null where no rank has written yet."""

    id: str
    state: RunState
    manifest: RunManifest
    ranks: tuple[int, ...]
    rank: RankItem | None


@dataclass(frozen=True)
class Live:
    """How far a rank is; `stamp` changes when new data is there."""

    state: RunState
    steps: int
    stamp: str


@ROUTER.get("/{run_id:path}/report", summary="What `profiler-server report --json` prints")
def read_report(run_id: RunId, services: ServicesOf) -> Response:
    from profiler_server.report import build_report

    return send_json(build_report(services.catalog.open(run_id)))


@ROUTER.get("/{run_id:path}/live", summary="How far a run is that records")
def read_live(rank: RankOf) -> Live:
    try:
        steps = rank.table("steps", ("step",))["step"]
        last = int(steps[-1].as_py()) if len(steps) else 0
    except RunError:
        last = 0
    return Live(rank.state, last, shorten_stamp(stamp_rank(rank.run_path, rank.rank)))


@ROUTER.get("/{run_id:path}", summary="One run: manifests, state, and which tables are there")
def read_run(run_id: RunId, services: ServicesOf, rank: Rank = None) -> RunDetail:
    run = services.catalog.open(run_id)
    ranks = run.ranks
    chosen = _describe_rank(run.rank(rank)) if ranks or rank is not None else None
    return RunDetail(run_id, run.state, run.manifest, ranks, chosen)


def _describe_rank(rank: RankRun) -> RankItem:
    try:
        statuses = [(name, rank.status(name)) for name in sorted(TABLES)]
        tables = tuple(TableItem(name, status.state, status.reason) for name, status in statuses)
        return RankItem(rank.rank, rank.state, rank.manifest, tables)
    except RunError as error:
        return RankItem(rank.rank, "crashed", None, (), str(error))
