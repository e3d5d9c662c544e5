"""Answers about runs that have ended carry a tag, and are sent again only where something has changed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from collector.format.schema import layout
from profiler_server.derive import stamps
from profiler_server.settings import Settings
from tests.support.asking import ADDRESS, Asker
from tests.support.large import build_large_run
from tests.support.runs import RunPlan, build_run

PAGES = ("/runs/team/a/", "/runs/team/a/steps", "/runs/team/a/data?tab=processing", "/runs/team/a/timeline")
DATA = (
    "/api/v1/runs/team/a",
    "/api/v1/runs/team/a/report",
    "/api/v1/runs/team/a/steps?page_size=5",
    "/api/v1/runs/team/a/tables/steps?format=csv",
    "/api/v1/runs/team/a/charts/duration",
    "/api/v1/runs/team/a/operators?format=csv",
    "/api/v1/runs/team/a/timeline/meta",
)
PATIENCE_S = 120.0


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take files that were written just now for settled ones."""
    monkeypatch.setattr(stamps, "SETTLED_NS", 0)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    build_run(tmp_path / "team/a", RunPlan(steps=14, ranks=2))
    return tmp_path


def revisit(asker: Asker, path: str, tag: str) -> int:
    return asker.ask(path, headers={"If-None-Match": tag}).status_code


def test_what_has_not_changed_is_not_sent_again(base: Path) -> None:
    asker = Asker(base)
    for path in (*PAGES, *DATA):
        first = asker.ask(path)
        assert first.status_code == 200, path
        assert first.headers["cache-control"] == "private, no-cache"
        again = asker.ask(path, headers={"If-None-Match": f'W/"other", {first.headers["etag"]}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
        assert "content-security-policy" in again.headers
        kept = asker.ask(path)
        assert (kept.content, kept.headers["content-type"]) == (first.content, first.headers["content-type"]), path
        assert asker.ask(path, headers={"If-None-Match": '"other"'}).status_code == 200


def rename(run: Path) -> None:
    file = layout.run_file(run)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"name": "b"}))


def shorten_table(run: Path) -> None:
    build_run(run, RunPlan(steps=13, ranks=2))


def rewrite_in_place(run: Path) -> None:
    """Change a byte and no more: same name, size and, to the nanosecond, time."""
    file = layout.rank_file(run, 1)
    before = file.stat()
    file.write_text(file.read_text().replace("complete", "COMPLETE".lower()))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def add_note(run: Path) -> None:
    (layout.profiler_path(run) / "notes.json").write_text("{}")


def add_part(run: Path) -> None:
    """Put a file two levels down."""
    folder = layout.table_parts_folder(layout.rank_path(run, 0), "stages")
    folder.mkdir()
    (folder / "part.txt").write_text("")


def drop_rank(run: Path) -> None:
    shutil.rmtree(layout.rank_path(run, 1))


@pytest.mark.parametrize("change", [rename, shorten_table, rewrite_in_place, add_note, add_part, drop_rank])
def test_a_change_of_the_run_changes_the_tag(base: Path, change: Callable[[Path], None]) -> None:
    asker = Asker(base)
    tags = {path: asker.ask(path).headers["etag"] for path in (PAGES[0], DATA[0])}
    time.sleep(0.02)  # a tick of the file system's clock
    change(base / "team/a")
    assert {path: revisit(asker, path, tag) for path, tag in tags.items()} == dict.fromkeys(tags, 200)


def test_query_and_address_are_part_of_the_tag(base: Path) -> None:
    asker = Asker(base)
    paths = [
        f"{page}{query}" for page in ("/runs/team/a/", "/runs/team/a/steps") for query in ("", "?rank=1", "?rank=0")
    ]
    assert len({asker.ask(path).headers["etag"] for path in paths}) == len(paths)
    assert "steps=3-5" not in asker.ask("/runs/team/a/steps").text
    assert "steps=3-5" in asker.ask("/runs/team/a/steps?steps=3-5").text


def test_another_server_makes_its_own_tags(base: Path) -> None:
    """Its rules, pages and version may be others."""
    tag = Asker(base).ask(PAGES[0]).headers["etag"]
    assert revisit(Asker(base), PAGES[0], tag) == 200


def test_a_page_drawn_with_another_template_or_style_has_another_tag(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker = Asker(base)
    tag = asker.ask(PAGES[0]).headers["etag"]
    for part in ("static", "_templates_files"):
        monkeypatch.setattr(getattr(asker.app.state.services, part), "_version", "edited")
        monkeypatch.setattr(getattr(asker.app.state.services, part), "_checked", float("inf"))
        assert revisit(asker, PAGES[0], tag) == 200


@pytest.mark.parametrize("state", ["recording", "crashed"])
def test_a_run_that_may_still_change_is_always_sent(tmp_path: Path, state: str) -> None:
    build_run(tmp_path / "going", RunPlan(steps=14, state="recording"))
    if state == "crashed":  # its process is gone, and the file says that it records
        file = layout.rank_file(tmp_path / "going", 0)
        file.write_text(json.dumps(json.loads(file.read_text()) | {"pid": 2**22 + 1}))
    answer = Asker(tmp_path).ask("/runs/going/")
    assert "etag" not in answer.headers
    assert answer.headers["cache-control"] == "no-store"


def test_what_changed_an_instant_ago_may_change_again(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stamps, "SETTLED_NS", 10**12)
    assert "etag" not in Asker(base).ask(PAGES[0]).headers


def test_errors_and_runs_with_links_carry_no_tag(base: Path) -> None:
    asker = Asker(base)
    assert "etag" not in asker.ask("/runs/team/a/nothing").headers
    assert "etag" not in asker.ask("/api/v1/runs/team/a/tables/nothing").headers
    assert "etag" not in asker.ask("/runs/team/a/?rank=x").headers
    tag = asker.ask(PAGES[0]).headers["etag"]
    file = layout.table_file(layout.rank_path(base / "team/a", 0), "steps")
    file.rename(base / "elsewhere.parquet")
    file.symlink_to(base / "elsewhere.parquet")
    again = asker.ask(PAGES[0], headers={"If-None-Match": tag})
    assert (again.status_code, "etag" in again.headers) == (409, False)


def test_a_page_that_waits_for_a_result_carries_no_tag(tmp_path: Path) -> None:
    build_large_run(tmp_path / "large")
    asker = Asker(tmp_path)
    paths = ("/runs/large/device", "/runs/large/timeline")
    assert ["etag" in asker.ask(path).headers for path in paths] == [False, False]
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and not all("etag" in asker.ask(path).headers for path in paths):
        time.sleep(0.2)
    final = asker.ask("/runs/large/device")
    assert "etag" in final.headers
    assert "data-pending" not in final.text


def test_nobody_is_told_without_a_token_that_a_page_has_not_changed(base: Path) -> None:
    asker = Asker(base, Settings(base, token="0123456789abcdef-token"))
    bearer = {"Authorization": "Bearer 0123456789abcdef-token"}
    tag = asker.ask(PAGES[0], headers=bearer).headers["etag"]
    assert asker.ask(PAGES[0], headers={**bearer, "If-None-Match": tag}).status_code == 304
    for headers in ({"If-None-Match": tag}, {}, {"If-None-Match": tag, "Authorization": "Bearer wrong"}):
        refused = asker.ask(PAGES[0], headers=headers)
        assert (refused.status_code, "etag" in refused.headers) == (401, False)
    assert asker.ask(PAGES[0], headers={**bearer, "If-None-Match": tag, "Host": "evil.example"}).status_code == 421


def test_a_monitor_is_told_the_tag_without_the_page(base: Path) -> None:
    asker = Asker(base)
    asked = asker.ask(PAGES[0], "HEAD")
    full = asker.ask(PAGES[0])
    assert full.headers["etag"] == asked.headers["etag"]
    assert full.text.endswith("</html>\n") or full.text.rstrip().endswith("</html>")
    assert asker.ask(PAGES[0], "HEAD").headers["content-length"] == full.headers["content-length"]


def test_a_page_that_many_ask_for_at_once_is_made_once(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asker = Asker(base)
    made: list[str] = []
    respond = asker.app.state.services.respond

    def note(template: str, *given: Any, **context: Any) -> Any:
        made.append(template)
        time.sleep(0.2)
        return respond(template, *given, **context)

    monkeypatch.setattr(asker.app.state.services, "respond", note)
    with ThreadPoolExecutor(1) as pool:  # not in the main thread, where a loop may be running
        texts = pool.submit(lambda: asyncio.run(ask_at_once(asker, PAGES[1], 12))).result()
    assert made == ["steps.html"]
    assert len(set(texts)) == 1


async def ask_at_once(asker: Asker, path: str, times: int) -> list[str]:
    transport = httpx.ASGITransport(asker.app)
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        answers = await asyncio.gather(*(client.get(path) for _ in range(times)))
    return [answer.text for answer in answers]
