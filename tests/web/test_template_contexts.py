"""A page's dataclass and its template name the same things: a field that no one shows, or a name that no one gives, fails."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator

import jinja2
import pytest
from jinja2 import meta, nodes

import profiler_server.pages
from profiler_server.page import Page
from profiler_server.web.frontend import Templates, find_frontend
from profiler_server.web.links import Links
from profiler_server.web.routes.compare import CompareView, SeveralView
from profiler_server.web.routes.history import HistoryView
from profiler_server.web.routes.run_list import RunList
from profiler_server.web.shell import find_pages

SHELL_NAMES = {"shell", "run_id", "rank"}
FRAME = ("base.html", "frame/")
ENVIRONMENT = Templates(find_frontend() / "templates", Links(lambda: "v")).environment
PAGES = find_pages(profiler_server.pages)


def read_names(template: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """Return the names that a template and what it includes or imports take from the context."""
    loader = typing.cast(jinja2.BaseLoader, ENVIRONMENT.loader)
    source, _, _ = loader.get_source(ENVIRONMENT, template)
    tree = ENVIRONMENT.parse(source)
    names = meta.find_undeclared_variables(tree) - set(ENVIRONMENT.globals) - read_own_names(tree)
    for inner in meta.find_referenced_templates(tree):
        if inner is not None and inner not in seen and not inner.startswith(FRAME):
            names |= read_names(inner, seen | {template})
    return names - SHELL_NAMES


def read_own_names(tree: nodes.Template) -> set[str]:
    """Return the names that a template imports, sets or defines itself; blocks see those of the top level."""
    imported = {node.target for node in tree.find_all(nodes.Import)}
    chosen = {name for node in tree.find_all(nodes.FromImport) for name in node.names if isinstance(name, str)}
    assigned = {node.name for node in tree.find_all(nodes.Name) if node.ctx == "store"}
    return imported | chosen | assigned | {node.name for node in tree.find_all(nodes.Macro)}


def list_contexts() -> Iterator[tuple[str, type]]:
    yield "runs.html", RunList
    yield "compare.html", CompareView
    yield "compare_several.html", SeveralView
    yield "history.html", HistoryView
    for page in PAGES.pages:
        yield page.template, typing.get_type_hints(page.build)["return"]


def test_every_page_module_loads() -> None:
    assert [module.name for module in PAGES.broken] == []
    assert {page.slug for page in PAGES.pages} >= {"", "steps", "operators", "data", "timeline"}


def test_slugs_and_keys_are_unique() -> None:
    def of(field: str) -> list[str]:
        return [getattr(page, field) for page in PAGES.pages if isinstance(page, Page)]

    assert len(set(of("slug"))) == len(of("slug"))
    assert len(set(of("key"))) == len(of("key"))
    assert "l" not in of("key")  # the list of runs


@pytest.mark.parametrize(("template", "context"), list(list_contexts()), ids=lambda value: str(value)[:30])
def test_template_and_context_agree(template: str, context: type) -> None:
    assert dataclasses.is_dataclass(context)
    fields = {field.name for field in dataclasses.fields(context)}
    assert read_names(template) == fields
