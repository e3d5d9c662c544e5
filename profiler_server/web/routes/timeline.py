"""The routes of a timeline's data: metadata, tiles, search, slices, and the download as a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import pyarrow as pa
from fastapi import APIRouter, Depends, Query, Request
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, JSONResponse, Response

from collector.format.run import RankRun, Run
from collector.format.schema.errors import OptionError
from collector.format.schema.removal import scratch_folder
from profiler_server.analysis.ranks.one_clock import MOST_TOGETHER, align_ranks
from profiler_server.analysis.ranks.ranks import summarize_some
from profiler_server.analysis.replay.critical import find_critical_path
from profiler_server.analysis.selection import choose_ranks
from profiler_server.derive.derived import NotReady
from profiler_server.diagnosis.clock_sentences import describe_clocks
from profiler_server.timeline.cache import find_timelines
from profiler_server.timeline.details import describe_slice
from profiler_server.timeline.export import Detail, Part, count_export, export_timeline
from profiler_server.timeline.search import Direction, search
from profiler_server.timeline.store import Timeline
from profiler_server.timeline.tiles import MEDIA_TYPE, pack_tile
from profiler_server.timeline.view import view_clock, view_details, view_meta, view_path, view_record
from profiler_server.web.guard import is_loopback
from profiler_server.web.parameters import RankOf, RunId, Workers
from profiler_server.web.services import ServicesOf

ROUTER = APIRouter(prefix="/api/v1/runs/{run_id:path}/timeline", tags=["timeline"])
_FOREVER = {"Cache-Control": "private, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
_FRESH = {"Cache-Control": "no-store"}
_MOST_NS = 2**62
_MOST_EXPORTED = 5_000_000
T = TypeVar("T")

Stamp = Annotated[str, Query(max_length=32, pattern="^[0-9a-f]*$", description="`stamp` of the metadata.")]
Together = Annotated[
    str, Query(max_length=200, description=f"Such as 5,0-2, at most {MOST_TOGETHER}; the clock of the first counts.")
]
Ns = Annotated[int, Query(ge=-_MOST_NS, le=_MOST_NS, description="Nanoseconds since `origin` of the metadata.")]


@dataclass(frozen=True)
class Asked:
    """A request for the timeline of a rank. `stamp` names the version of the timeline that the open page shows; "" asks
    for the current version.
    """

    rank: RankRun
    stamp: str

    def answer(self, question: Callable[[Timeline], T]) -> T:
        """Return `question` applied to the timeline. Damaged files are built again. 409 if the run has grown since the
        page was opened.
        """
        return find_timelines().ask(self.rank, question, self._open)

    def _open(self) -> Timeline:
        found = find_timelines().find(self.rank, self.stamp) if self.stamp else None
        if found is None:
            found = find_timelines().open(self.rank)
            if self.stamp and found.stamp != self.stamp:
                raise HTTPException(409, "The run has grown since this page was opened; reload it to see the rest")
        return found


def find_asked(rank: RankOf, stamp: Stamp = "") -> Asked:
    return Asked(rank, stamp)


TimelineOf = Annotated[Asked, Depends(find_asked)]


@ROUTER.get("/meta", summary="Tracks, levels and the dictionary of a rank's timeline")
def read_meta(rank: RankOf) -> Response:
    """Return the metadata. While a large timeline is prepared, 202 with `building`, the fraction done. After a failure,
    the next request gets the error, and then preparing starts again."""
    if find_timelines().is_awaited(rank):
        return JSONResponse({"building": find_timelines().find_progress(rank) or 0.0}, 202, _FRESH)
    return JSONResponse(find_timelines().ask(rank, view_meta))


@ROUTER.get("/tile", summary="1,024 bins of every lane, packed (see profiler_server/timeline/tiles.py)")
def read_tile(
    request: Request,
    timeline: TimelineOf,
    level: Annotated[int, Query(ge=0, le=54)],
    number: Annotated[int, Query(ge=0, le=2**52)],
    stamp: Stamp = "",
) -> Response:

    def read(opened: Timeline) -> bytes:
        index = opened.index
        if not index.raw_level <= level <= index.top_level:
            raise HTTPException(400, f"level={level} is not between {index.raw_level} and {index.top_level}")
        return pack_tile(opened, level, number)

    return _send_packed(request, timeline.answer(read), _FOREVER if stamp else _FRESH)


@ROUTER.get("/search", summary="The next or previous slice whose name contains a text")
def find_slice(
    timeline: TimelineOf,
    q: Annotated[str, Query(max_length=200)],
    start: Ns = -1,
    place: Annotated[int, Query(ge=-1, le=2**40)] = -1,
    direction: Annotated[Direction, Query()] = "next",
) -> Response:
    found = timeline.answer(lambda opened: view_record(search(opened, q, (start, place), direction)))
    return JSONResponse(found)


@ROUTER.get("/slice", summary="Everything about one slice")
def read_slice(timeline: TimelineOf, id: Annotated[int, Query(ge=0, le=2**32)]) -> Response:
    found = timeline.answer(lambda opened: describe_slice(opened, id))
    if found is None:
        raise HTTPException(404, f"There is no slice {id} in rank {timeline.rank.rank}")
    return JSONResponse(view_details(found))


@ROUTER.get("/critical", summary="The critical path of the recorded steps, piece by piece")
def read_critical(timeline: TimelineOf) -> Response:
    """Return the critical path; empty if there is none. 202 with `pending`, a sentence, while the path of a large
    window is computed."""
    path = find_critical_path.peek(timeline.rank)
    if isinstance(path, NotReady):
        return JSONResponse({"pending": path.reason}, 202, _FRESH)
    return JSONResponse(timeline.answer(lambda opened: view_path(opened, path)), headers=_FRESH)


@ROUTER.get("/clocks", summary="What puts the times of some ranks on the clock of the first")
def read_clocks(run_id: RunId, services: ServicesOf, ranks: Together) -> Response:
    """Return the clocks of ranks. A rank's time, in ns since the run's epoch, is time + `shift` + `drift` · (time -
    `anchor`) on the first rank's clock."""
    run = services.catalog.open(run_id)
    clocks = align_ranks(summarize_some(run, choose_ranks(run.ranks, ranks, MOST_TOGETHER)))
    return JSONResponse({"clocks": [view_clock(clock) for clock in clocks], "sentence": describe_clocks(clocks)})


@ROUTER.get("/export", summary="A trace for Perfetto or chrome://tracing", response_class=FileResponse)
def download(
    run_id: RunId,
    services: ServicesOf,
    ranks: Annotated[str | None, Query(max_length=200, description="Such as 0,2-5; all by default.")] = None,
    steps: Annotated[str | None, Query(max_length=200, description="Such as 10-12; all by default.")] = None,
    detail: Annotated[Detail, Query()] = "full",
    begin: Annotated[int | None, Query(ge=-_MOST_NS, le=_MOST_NS, description="ns since the run's epoch.")] = None,
    end: Annotated[int | None, Query(ge=-_MOST_NS, le=_MOST_NS)] = None,
    packed: Annotated[Literal["json", "json.gz"], Query()] = "json.gz",
    workers: Workers = None,
    one_clock: Annotated[
        bool, Query(description="All times on the clock of the first rank; a process per rank.")
    ] = False,
) -> Response:
    """Write the trace to a temporary file, then send it. `X-Left-Out` lists what the trace leaves out."""
    run = services.catalog.open(run_id)
    between = (begin, end) if begin is not None and end is not None else None
    part = Part(ranks, steps, detail, between, workers, one_clock)
    if not steps and detail == "full":
        _refuse_too_large(run, part)
    with ExitStack() as opened:
        path = opened.enter_context(scratch_folder("stepscope-export-")) / f"trace.{packed}"
        report = export_timeline(run, path, part)
        remove_folder = opened.pop_all().close
    kind = "application/gzip" if packed == "json.gz" else "application/json"
    name = f"{_name_trace(run.path.name, report.ranks)}.{packed}"
    headers = {**_FRESH, "X-Left-Out": "; ".join(report.left_out).encode("ascii", "replace").decode() or "nothing"}
    return FileResponse(path, media_type=kind, filename=name, headers=headers, background=BackgroundTask(remove_folder))


def _refuse_too_large(run: Run, part: Part) -> None:
    """Refuse a download that is too large for any viewer, and would keep the server busy for minutes."""
    slices = count_export(run, part)
    if slices > _MOST_EXPORTED:
        raise OptionError(
            f"this stretch holds {slices:,} slices, a download at most {_MOST_EXPORTED:,}; zoom in, choose less detail, "
            "or write the file with `stepscope export`"
        )


def _name_trace(run: str, ranks: Sequence[int]) -> str:
    """Return a file name that is valid on every file system. For a single rank, it ends in the rank."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in run)[:80]
    return f"{safe}-rank{ranks[0]}" if len(ranks) == 1 else safe


def _send_packed(request: Request, body: bytes, headers: dict[str, str]) -> Response:
    """Return the bytes as a response. It is compressed with zstd if the client is on another machine and accepts zstd.

    For a client on this machine, compression takes longer than it saves.
    """
    if not is_loopback(request.scope) and "zstd" in request.headers.get("accept-encoding", ""):
        packed = pa.Codec("zstd", 1).compress(body, asbytes=True)
        return Response(packed, media_type=MEDIA_TYPE, headers={**headers, "Content-Encoding": "zstd"})
    return Response(body, media_type=MEDIA_TYPE, headers=headers)
