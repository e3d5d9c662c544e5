"""Pages of runs of every kind are rendered without a name that nobody gave, and every field that pages give is used."""

from __future__ import annotations

import ast
import dataclasses
import re
import typing
from pathlib import Path
from typing import Any

import jinja2
import pytest
from jinja2 import nodes

import profiler_server.pages
from profiler_server.web.frontend import find_frontend
from profiler_server.web.routes.compare import CompareView
from profiler_server.web.routes.run_list import RunList
from profiler_server.web.shell import find_pages
from tests.support.asking import Asker, read_words
from tests.support.panorama import PANORAMA
from tests.support.runs import RunPlan, build_run

SERVER = Path(profiler_server.pages.__file__).parents[1]
PAGES = find_pages(profiler_server.pages).pages
SLUGS = [page.slug for page in PAGES]
QUERIES = {
    "": ("", "?steps=2-9"),
    "steps": ("", "?step=3", "?step=none"),
    "memory": ("", "?steps=5-9", "?at_ns=x&device=9"),
    "ranks": ("", "?sort=-own"),
    "operators": ("", *(f"?group={group}" for group in ("host", "operators", "kernels", "modules", "roofline"))),
    "data": ("", "?tab=processing"),
}
NO_WINDOW = "No detailed window"
ONE_RANK = "This run has one process"

READ: dict[str, dict[str, str]] = {
    "rich": {
        "": "200 steps recorded",
        "steps": "The average covers 197 of 200 steps",
        "operators": "Self time on the host of all 5 types",
        "device": "although this run had a device",
        "data": "Not input-bound",
        "memory": "The processors had room",
        "ranks": ONE_RANK,
        "timeline": "executions",
    },
    "empty": {
        "": "No steps were recorded",
        "steps": "No steps",
        "operators": "No operators yet",
        "device": NO_WINDOW,
        "data": "No step was recorded yet",
        "memory": "Resources were not sampled",
        "ranks": ONE_RANK,
        "timeline": "No timeline",
    },
    "no-gpu": {
        "": "Highly input-bound",
        "steps": "Data wait",
        "operators": "on the host",
        "device": "No device work",
        "data": "empty in 30 of 40 requests",
        "memory": "Resources were not sampled",
        "ranks": ONE_RANK,
        "timeline": "no device stream in this run",
    },
    "ranks": {
        "": "80.0 ms",
        "steps": "Communication",
        "operators": "steps 10–12",
        "device": "No device work",
        "data": "Not input-bound",
        "memory": "Resources were not sampled",
        "ranks": "Rank 3 holds 7 others up",
        "timeline": "Ranks on one clock",
    },
    "crashed": dict.fromkeys(SLUGS, "This run ended before it was analysed."),
    "imported": {
        "": "Only 6 steady steps were recorded",
        "steps": "The average covers all 6 steps",
        "operators": "on the device",
        "device": "NVIDIA H100",
        "data": "Traces do not hold this",
        "memory": "An imported trace holds no samples of the machine",
        "ranks": "This trace is of one process",
        "timeline": "Device time",
    },
    "hostile": dict.fromkeys(SLUGS, '<script>alert("x")</script> & "quoted"'),
}
PLANS = {
    "light": RunPlan(operators=False),
    "one-step": RunPlan(steps=1),
    "no-workers": RunPlan(workers=0),
    "crashed-ranks": RunPlan(state="crashed", ranks=3),
}
RUNS = (*(name for name in PANORAMA if name != "long"), *PLANS)
MOST_LETTERS = 250_000
"""Of a page, whatever the texts of a run are: those of the hostile one have 10,000 each."""


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    base = tmp_path_factory.mktemp("kinds")
    for name, build in PANORAMA.items():
        if name != "long":
            build(base / name)
    for name, plan in PLANS.items():
        build_run(base / name, plan)
    build_run(base / "other", RunPlan(steps=60))
    return Asker(base)


@pytest.mark.parametrize("run", RUNS)
def test_every_page_is_rendered_without_a_name_that_nobody_gave(asker: Asker, run: str) -> None:
    """It says what a person comes for, and no text of the run turns into markup."""
    environment = asker.app.state.services.templates.environment
    assert environment.undefined is jinja2.StrictUndefined
    for address in (f"{page.slug}{query}" for page in PAGES for query in QUERIES.get(page.slug, ("",))):
        answer = asker.ask(f"/runs/{run}/{address}")
        assert answer.status_code == 200, (address, answer.text[-3000:])
        assert "error-title" not in answer.text, address
        assert "<script>alert" not in answer.text, address
        assert len(answer.text) < MOST_LETTERS, address
    for slug, words in READ.get(run, {}).items():
        text = read_words(asker.ask(f"/runs/{run}/{slug}").text.partition("<main")[2])
        assert words in text, slug


@pytest.mark.parametrize("address", ["/", "/?q=none", "/compare", "/compare?a=rich&b=other", "/runs/none", "/nowhere"])
def test_what_stands_around_runs_is_rendered_too(asker: Asker, address: str) -> None:
    assert asker.ask(address).status_code == (404 if address in ("/runs/none", "/nowhere") else 200)


def list_dataclasses(kind: Any, seen: set[Any]) -> None:
    """Add the dataclasses of the pages and the web that a type is made of."""
    rooms = ("profiler_server.pages", "profiler_server.web", "profiler_server.page")
    if dataclasses.is_dataclass(kind) and kind not in seen and str(getattr(kind, "__module__", "")).startswith(rooms):
        seen.add(kind)
        for hint in typing.get_type_hints(kind).values():
            list_dataclasses(hint, seen)
    for inner in typing.get_args(kind):
        list_dataclasses(inner, seen)


def read_names() -> set[str]:
    """Return every name that templates, scripts and the server's own code take of an object."""
    environment, frontend = jinja2.Environment(autoescape=True), find_frontend()
    templates = (environment.parse(path.read_text("utf-8")) for path in (frontend / "templates").rglob("*.html"))
    scripts = (path.read_text("utf-8") for path in (frontend / "static/js").rglob("*.js"))
    modules = (ast.parse(path.read_text("utf-8")) for path in SERVER.rglob("*.py"))
    return {
        *(node.attr for tree in templates for node in tree.find_all(nodes.Getattr)),
        *(name for text in scripts for name in re.findall(r"[.{,]\s*([a-z_]\w*)", text)),
        *(node.attr for tree in modules for node in ast.walk(tree) if isinstance(node, ast.Attribute)),
    }


def test_no_field_of_what_a_page_gives_is_unused() -> None:
    contexts = {RunList, CompareView, *(typing.get_type_hints(page.build)["return"] for page in PAGES)}
    kinds: set[Any] = set()
    for context in contexts:
        list_dataclasses(context, kinds)
    assert len(kinds) > 40
    named = read_names()
    # The fields of a whole context are names of its template, which are compared without rendering.
    fields = ((kind, entry.name) for kind in kinds - contexts for entry in dataclasses.fields(kind))
    assert sorted(f"{kind.__module__}.{kind.__name__}.{name}" for kind, name in fields if name not in named) == []
