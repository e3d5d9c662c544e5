"""Ask the server of a folder of runs, and notice whatever a user must never see."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import httpx
import pyarrow as pa

from collector.format.schema.errors import StepscopeError
from profiler_server.settings import Settings
from profiler_server.web.answers import describe_error
from profiler_server.web.app import create_app
from tests.fuzz.files import take_stock
from tests.fuzz.frame import HarmError
from tests.support.asking import ADDRESS

_DECLARED = (503, 507)
_CACHED = re.compile(r"/\.(timeline|results)/|/\.stepscope-summaries")
_NAMELESS = re.compile(
    r"\b(Attribute|Key|Index|Type|Assertion|Name|ZeroDivision|UnboundLocal|Recursion|NotImplemented)Error\b"
)
_PAGES = (
    "", "steps", "operators", "operators?group=host", "operators?group=modules", "device", "data", "data?tab=processing",
    "data?tab=queues", "memory", "ranks", "timeline", "timeline?ranks=0,1", "?steps=2-9", "steps?steps=2-9&rank=0", "?rank=1",
)  # fmt: skip
_API = (
    "", "/report", "/live", "/ranks", "/memory", "/operators", "/operators?group=modules&format=csv", "/queues", "/stages",
    "/steps", "/charts/steps", "/timeline/meta", "/timeline/search?q=a", "/timeline/slice?id=1", "/timeline/tile?level=54&number=0",
    "/timeline/critical", "/timeline/export?detail=full&packed=json", "/timeline/export?one_clock=true&packed=json",
    "/timeline/clocks?ranks=0,1",
)  # fmt: skip
_COMPARED = ("/compare?a={run}&b={other}", "/compare?a={other}&b={run}", "/api/v1/compare?a={run}&b={other}")
LISTS = ("/", "/api/v1/runs", "/api/v1/verdicts?id={run}")


def list_addresses(run: str, other: str) -> list[str]:
    """Return the pages and answers in which a run is shown."""
    own = [*(f"/runs/{run}/{page}" for page in _PAGES), *(f"/api/v1/runs/{run}{part}" for part in _API)]
    return [*own, *(address.format(run=run, other=other) for address in (*_COMPARED, *LISTS))]


class Faults(logging.Handler):
    """Keeps the exceptions that reach the log as a fault, but for the product's own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, StepscopeError):
            self.found.append(error)


class Server:
    """The app of a folder, asked from one loop, so that its threads are kept."""

    def __init__(self, base_dir: Path) -> None:
        self.app = create_app(Settings(base_dir))
        self._loop = asyncio.new_event_loop()
        transport = httpx.ASGITransport(self.app, client=("127.0.0.1", 5000))
        self._client = httpx.AsyncClient(transport=transport, base_url=ADDRESS)
        self._faults = Faults()
        logging.getLogger().addHandler(self._faults)

    def ask(self, address: str, method: str = "GET", body: bytes = b"", kind: str = "") -> httpx.Response:
        """Return the answer. An exception that no handler took is raised; an answer that no user should get is HarmError."""
        headers = {"Content-Type": kind} if kind else {}
        request = self._client.request(method, address, content=body or None, headers=headers)
        try:
            answer = self._loop.run_until_complete(request)
        except (pa.ArrowException, OverflowError, MemoryError) as error:
            view = describe_error(error)  # which is logged, too
            answer = httpx.Response(view.status, text=view.cause)
        if self._faults.found:
            raise self._faults.found.pop()
        if answer.status_code >= 500 and answer.status_code not in _DECLARED:
            raise HarmError(f"{address.partition('?')[0]} answers {answer.status_code}: {answer.text[-300:]}")
        text = answer.text
        if "Traceback (most" in text or (answer.status_code >= 300 and _NAMELESS.search(text)):
            raise HarmError(f"{address.partition('?')[0]} shows an exception: {_cut_out(text)}")
        return answer

    def close(self) -> None:
        logging.getLogger().removeHandler(self._faults)
        self._loop.run_until_complete(self._client.aclose())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


def _cut_out(text: str) -> str:
    found = _NAMELESS.search(text)
    at = found.start() if found else text.find("Traceback")
    return text[max(at - 100, 0) : at + 200]


class Bystander:
    """A run beside the one that is attacked, and all that lies in their folder but for caches: nothing of it may change."""

    def __init__(self, server: Server, base: Path, run: str) -> None:
        self._server, self._base = server, base
        self._pages = [(page, server.ask(page).text) for page in (f"/runs/{run}/steps", f"/runs/{run}/data")]
        self._stock = self._take_stock()

    def verify(self) -> None:
        for page, text in self._pages:
            if self._server.ask(page).text != text:
                raise HarmError(f"{page} of another run has changed")
        if (now := self._take_stock()) != self._stock:
            changed = {path for path, _ in set(now.items()) ^ set(self._stock.items())}
            self._stock = now
            raise HarmError(f"changed: {sorted(changed)[:5]}")

    def _take_stock(self) -> dict[str, tuple[int, int]]:
        return {path: at for path, at in take_stock(self._base).items() if not _CACHED.search(path)}
