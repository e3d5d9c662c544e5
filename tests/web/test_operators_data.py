"""The Operators and Data pipeline pages and their REST routes over HTTP: without JavaScript, with hostile content."""

from __future__ import annotations

import csv
import html
import io
import re
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

import httpx
import numpy as np
import pytest

from collector.format import parts
from collector.format.schema.manifest import Loader
from tests.support.asking import Asker
from tests.support.live import edit_rank
from tests.support.runs import RunPlan, build_run, slow_loader_plan
from tests.support.tables import operator, sample, stage, write_rows

Fetch = Callable[..., httpx.Response]
SCRIPT = "<script>alert(1)</script>"
HOSTILE = (
    SCRIPT,
    "x" * 10_000,
    "🚀 kernel 👩‍👩‍👧",
    "\u202eشبكة عصبية",
    "a\nb\tc",
    "",
    "'\"&amp; onload=x",
    "=cmd|' /C calc'!A0",
)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    build_run(tmp_path / "healthy", RunPlan())
    build_run(tmp_path / "slow", slow_loader_plan("transform"))
    return tmp_path


@pytest.fixture
def fetch(base: Path) -> Fetch:
    asker = Asker(base)
    return lambda path, **query: asker.ask(path + ("?" + urlencode(query) if query else ""))


def _links(page: str, text: str) -> list[str]:
    """Return the addresses of the links whose text ends so."""
    found = re.findall(r'<a [^>]*href="([^"]+)"[^>]*>(.*?)</a>', page, re.DOTALL)
    shown = ((html.unescape(href), re.sub(r"<[^>]+>", "", inner).strip()) for href, inner in found)
    return [href for href, inner in shown if inner == text]


def test_sort_search_and_paging_are_links_and_a_form(base: Path, fetch: Fetch) -> None:
    write_rows(base / "healthy", "operators", [operator(f"op_{i:03d}", self_ns=i) for i in range(60)])
    page = fetch("/runs/healthy/operators", group="operators").text
    following = fetch(_links(page, "Next ›")[0]).text
    assert "<bdi>op_034</bdi>" in following
    assert "<bdi>op_059</bdi>" not in following
    by_name = fetch(_links(page, "Operator")[0]).text
    assert by_name.index("<bdi>op_000") < by_name.index("<bdi>op_001")
    assert 'aria-sort="ascending"' in by_name
    assert '<form class="search" role="search" method="get"' in page
    found = fetch("/runs/healthy/operators", group="operators", q="OP_04").text
    assert "10 of 60 operators match" in found


@pytest.mark.parametrize("path", ["operators", "operators?group=modules", "operators?group=operators", "data"])
def test_names_are_text_wherever_they_come_from(base: Path, fetch: Fetch, path: str) -> None:
    run = base / "healthy"
    write_rows(run, "operators", [operator(n, type=n, module=n, input_shapes=n, call_stack=n) for n in HOSTILE])
    _write_hostile_pipeline(run)
    answer = fetch(f"/runs/healthy/{path}")
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text
    assert "alert(1)" in answer.text
    assert len(answer.content) < 200_000


@pytest.mark.parametrize("name", HOSTILE)
def test_every_name_opens_by_its_own_link(base: Path, fetch: Fetch, name: str) -> None:
    write_rows(base / "healthy", "operators", [operator(name or "(empty)")])
    page = fetch("/runs/healthy/operators", group="operators").text
    link = re.search(r'class="expander" href="([^"]+)"', page)
    assert link is not None
    opened = fetch(html.unescape(link[1]))
    assert opened.status_code == 200
    assert "By input shape" in opened.text


def test_hostile_stages_queues_and_loaders_are_text(base: Path, fetch: Fetch) -> None:
    _write_hostile_pipeline(base / "healthy")
    answer = fetch("/runs/healthy/data", tab="processing", queue=SCRIPT)
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text
    assert "depth over time" in answer.text
    assert fetch("/runs/healthy/data", tab=SCRIPT, loader=SCRIPT, queue="x" * 1000).status_code == 200


def _write_hostile_pipeline(run: Path) -> None:
    names = [name or "empty" for name in HOSTILE]
    write_rows(run, "queues", [sample(s, s % 3, loader=-1, queue=SCRIPT) for s in range(1, 20)])
    own = [stage(name, loader=None, longest_ns=5) for name in names]
    write_rows(run, "stages", [*own, *(stage("transform", detail=name, longest_ns=5) for name in names)])
    edit_rank(run, loaders=(Loader(0, SCRIPT, "map", num_workers=2), Loader(1, "x" * 10_000, "iterable")))


def test_the_pages_hold_nothing_inline(fetch: Fetch) -> None:
    for path in ("operators", "data", "data?tab=processing&queue=worker_queue"):
        page = fetch(f"/runs/slow/{path}").text
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=", page)
        assert not re.search(r"<script(?![^>]*src=)(?![^>]*application/json)", page)


def test_rest_gives_the_operators_of_a_group(fetch: Fetch) -> None:
    answer = fetch("/api/v1/runs/healthy/operators", group="types", sort="-self_ns", size=2).json()
    assert (answer["matched"], answer["pages"], answer["measure"], answer["steps"]) == (5, 3, "host", [10, 11, 12])
    assert [row["type"] for row in answer["rows"]] == ["convolution", "matmul"]
    assert sum(row["share_frac"] for row in fetch("/api/v1/runs/healthy/operators").json()["rows"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ({"sort": "nope"}, 400, "no column"),
        ({"group": "cake"}, 422, "group"),
        ({"page": "0"}, 422, "page"),
        ({"size": "5000"}, 422, "size"),
        ({"steps": "a-b"}, 422, "steps"),
        ({"steps": "9-2"}, 400, "ends before it starts"),
        ({"rank": "7"}, 404, "rank 7"),
    ],
)
def test_rest_refuses_what_it_does_not_understand(fetch: Fetch, query: dict[str, str], status: int, words: str) -> None:
    answer = fetch("/api/v1/runs/healthy/operators", **query)
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]


def test_csv_holds_every_row_and_no_formula(base: Path, fetch: Fetch) -> None:
    write_rows(base / "healthy", "operators", [operator(f"op{i}") for i in range(300)] + [operator("=1+1")])
    answer = fetch("/api/v1/runs/healthy/operators", format="csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert answer.headers["content-type"].startswith("text/csv")
    assert len(rows) == 301
    assert "'=1+1" in {row["name"] for row in rows}


def test_rest_gives_queues_samples_and_stages(fetch: Fetch) -> None:
    queue = fetch("/api/v1/runs/slow/queues").json()["queues"][0]
    assert (queue["name"], queue["capacity"], queue["empty_frac"]) == ("worker_queue", 4, 0.75)
    samples = fetch("/api/v1/runs/slow/queues/worker_queue", first_step=5, last_step=8, sort="-depth").json()
    assert [row["depth"] for row in samples["rows"]] == [1, 0, 0, 0]
    assert fetch("/api/v1/runs/slow/queues/nope").status_code == 400
    stages = fetch("/api/v1/runs/slow/stages").json()
    assert max(stages["stages"], key=lambda row: row["mean_ns"])["name"] == "transform"
    assert [row["replica"] for row in stages["workers"]] == [0, 1]


def test_a_hundred_thousand_operator_rows_are_shown_within_300_ms(base: Path, fetch: Fetch) -> None:
    count = 100_000
    numbers = np.arange(count)
    columns = {
        "step": 10 + numbers % 10,
        "name": [f"aten::op_{i % 3000}" for i in range(count)],
        "type": [f"type{i % 3000 % 40}" for i in range(count)],
        "input_shapes": [f"[[{i % 50},3]]" for i in range(count)],
        **dict.fromkeys(("total_ns", "self_ns", "device_total_ns", "device_self_ns", "count"), numbers % 977),
    }
    folder = base / "healthy/profiler/rank_0"
    parts.write_table(parts.build_table("operators", columns), folder / "operators.parquet")
    assert fetch("/runs/healthy/operators").status_code == 200  # the first request loads the pages
    times = []
    for query in ({}, {"group": "operators", "q": "op_1"}, {"type": "type3", "operator": "aten::op_3"}, {"page": "2"}):
        start = time.process_time()
        assert fetch("/runs/healthy/operators", **query).status_code == 200
        times.append(time.process_time() - start)
    assert median(times) < 0.3, times
