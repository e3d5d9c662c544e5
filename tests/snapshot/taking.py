"""Take all that a user sees of the runs in a folder: reports, pages and what they point to, the interface, tables.

Of a page its rendered text is taken, not its context: a refactoring renames and merges the fields of contexts, and none
of that is seen; a filter or a macro that changes is seen, and stands in no context.
"""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urldefrag, urlsplit

import httpx
from typer.testing import CliRunner

from collector import open_run
from collector.format.rank import RankRun
from collector.format.schema.errors import StepscopeError
from collector.format.schema.tables import TABLES
from profiler_server import cli
from tests.snapshot.markup import read_page
from tests.snapshot.plain import LONGEST, Plain, clean, digest_bytes, digest_table, digest_trace, shorten
from tests.snapshot.still import Work, copy_still
from tests.support.asking import Asker

REPORTS = ("--json", "", "--brief", "--html", "--html --redact")
MOST_ALIKE = 3
"""Of the addresses that differ in values only, so many are followed from the pages of a run."""
DEPTH = 3
"""The first page, what that points to, and what those point to."""
_API = "/api/v1/runs"
_TRIES = 50


def take_one(folder: Path, root: Path, out: Path) -> None:
    """Write what is seen of the runs in a folder to a file of its name."""
    (out / f"{folder.name}.json").write_text(take_folder(folder, root), "utf-8", "surrogateescape")


def take_folder(folder: Path, root: Path) -> str:
    """Return, as JSON, what is seen of the runs in a folder as if it were the base directory; they are copied below `root` for it."""
    with copy_still(folder, root) as base, Work().watch() as work:
        site = _Site(base, work)
        listed = site.take(f"{_API}?page_size={LONGEST}")[0]
        ids = [run["id"] for run in listed["runs"]]
        runs = [*ids, *(run["id"] for run in listed["unreadable"])]
        taken = {
            "list": {"data": listed, "page": site.take("/")[0]},
            "compare": {f"{a} {b}": site.take(f"/compare?a={quote(a)}&b={quote(b)}")[0] for a, b in pairwise(ids)},
            "runs": {name: _take_run(site, base, base if name == "@base" else base / name, name) for name in runs},
        }
        return clean(json.dumps(taken, sort_keys=True, indent=1, ensure_ascii=False), str(base)) + "\n"


def _take_run(site: _Site, base: Path, path: Path, run_id: str) -> Plain:
    reports = {words or "text": _take_report(path, base, words) for words in REPORTS}
    return {
        "reports": reports,
        "first": site.take(f"/runs/{quote(run_id)}/")[0],
        **_try(lambda: _open(site, path, run_id)),
    }


def _open(site: _Site, path: Path, run_id: str) -> Plain:
    run = open_run(path)
    pages: dict[str, Plain] = {}
    for rank in sorted({*run.ranks[:2], *run.ranks[-1:]}):
        pages |= site.walk(run_id, rank, follows=rank == run.ranks[0])
    return {
        "prints": {name: _take_print(getattr(run, name)) for name in dir(run) if name.startswith("print_")},
        "pages": pages,
        "interface": site.take_interface(run_id),
        "tables": {str(rank): {name: _take_table(run.rank(rank), name) for name in TABLES} for rank in run.ranks},
    }


def _take_report(path: Path, base: Path, words: str) -> Plain:
    given = words.split()
    file = base.with_name(f"{base.name}.html")
    file.unlink(missing_ok=True)
    if "--html" in given:
        given.insert(1, str(file))
    done = CliRunner().invoke(_command(), ["report", str(path), *given, "--summary-base-dir", str(base)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return {"error": str(done.exception)}
    if file.exists():
        return read_page(file.read_text("utf-8"))[0]
    return json.loads(done.stdout) if "--json" in given else done.stdout.splitlines()


def _command() -> Any:
    if not cli.app.registered_commands:
        cli.register_commands()
    return cli.app


def _take_table(rank: RankRun, name: str) -> Plain:
    return _try(lambda: digest_table(rank.table(name)))


def _take_print(method: Callable[[], None]) -> Plain:
    with redirect_stdout(io.StringIO()) as said:
        ended = _try(lambda: method())
    return [*said.getvalue().splitlines(), *([ended] if ended else [])]


def _try(take: Callable[[], Plain]) -> Plain:
    try:
        return take()
    except StepscopeError as error:
        return {"error": str(error)}


class _Site:
    """The pages and the interface of a server on a folder of runs."""

    def __init__(self, base: Path, work: Work) -> None:
        self._asker = Asker(base)
        self._root = str(base)
        self._work = work

    def ask(self, address: str) -> httpx.Response:
        """Ask until nothing is done in the background any more, or what is done there changes nothing."""
        before = b""
        for _ in range(_TRIES):
            answer = self._asker.ask(address)
            if answer.status_code != 202 and (not self._work.wait() or answer.content == before):
                return answer
            self._work.wait()
            before = answer.content
        raise AssertionError(f"{address} is still being computed")

    def take(self, address: str) -> tuple[Plain, list[str]]:
        """Return an answer as plain data, and the addresses that it points to."""
        answer = self.ask(address)
        kind = answer.headers.get("content-type", "")
        addresses: list[str] = []
        if answer.is_redirect:
            taken: Plain = answer.headers["location"]
        elif "html" in kind:
            taken, addresses = read_page(clean(answer.text, self._root))
        else:
            taken = self._read_data(answer.content, kind)
        return taken if answer.status_code == 200 else {"status": answer.status_code, "answer": taken}, addresses

    def _read_data(self, body: bytes, kind: str) -> Plain:
        if "gzip" in kind:
            body, kind = gzip.decompress(body), "json"
        if "json" in kind:
            data = json.loads(clean(body.decode(), self._root))
            return digest_trace(data) if isinstance(data, dict) and "traceEvents" in data else shorten(data)
        return {"kind": kind, "bytes": len(body), "sha256": digest_bytes(body)}

    def walk(self, run_id: str, rank: int, follows: bool) -> dict[str, Plain]:
        """Take the pages of a rank that the navigation leads to; with `follows` also what they point to, of alike addresses a few."""
        inside = (f"/runs/{quote(run_id)}/", f"{_API}/{quote(run_id)}/")
        taken: dict[str, Plain] = {}
        alike: Counter[Any] = Counter()
        found = [f"{inside[0]}?rank={rank}"]
        for _ in range(DEPTH):
            wanted, found = found, []
            for address in filter(lambda one: one.startswith(inside) and one not in taken, wanted):
                split = urlsplit(address)
                query = dict(parse_qsl(split.query))
                shape = split.path, tuple(query)
                is_plain, is_own = query.keys() == {"rank"}, query.get("rank", str(rank)) == str(rank)
                alike[shape] += 1
                if query and is_own and (is_plain or (follows and alike[shape] <= MOST_ALIKE)):
                    taken[address], more = self.take(address)
                    found += [urldefrag(one)[0] for one in more]
        return taken

    def take_interface(self, run_id: str) -> dict[str, Plain]:
        """Take what the interface says of a run without being asked for anything in particular."""
        return {path: self.take(path.replace("{run_id}", quote(run_id)))[0] for path in self._list_routes()}

    def _list_routes(self) -> Iterator[str]:
        for path, methods in self._asker.ask("/api/v1/openapi.json").json()["paths"].items():
            asked = methods.get("get", {}).get("parameters", [])
            if "{run_id}" in path and {one["name"] for one in asked if one["required"]} == {"run_id"}:
                yield path
