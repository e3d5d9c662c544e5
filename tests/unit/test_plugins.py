"""Every room of plug-ins treats one that cannot be imported alike: one line, and all others are there."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import typer

from collector.plugins import find_plugins, search_room
from collector.traces import formats
from profiler_server import cli, commands
from profiler_server.web import routes

BROKEN = "import a_module_that_nobody_has\n"


@pytest.fixture
def room(tmp_path: Path) -> Iterator[ModuleType]:
    package = ModuleType("some_room")
    package.__path__ = [str(tmp_path)]
    sys.modules["some_room"] = package
    for name, text in (
        ("second", "RULE = 2\n"),
        ("first", "RULE = 1\n"),
        ("other", "PAGE = 3\n"),
        ("_own", "raise 1\n"),
        ("bad", BROKEN),
        ("worse", "raise ValueError('first line\\nsecond line')\n"),
    ):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == "some_room"]:
        del sys.modules[name]


def test_plug_ins_are_found_by_name_and_broken_ones_are_told(
    room: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    found = search_room(room, "RULE")
    assert [module.RULE for module in found.modules] == [1, 2]
    assert find_plugins(room, "PAGE") == (3,)
    reasons = {module.name: module.reason for module in found.broken}
    assert reasons == {
        "bad": "ModuleNotFoundError: No module named 'a_module_that_nobody_has'",
        "worse": "ValueError: first line",
    }
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert lines[0] == f"stepscope: some_room.bad is left out: {reasons['bad']}"
    assert not any("\n" in line for line in lines)


@pytest.fixture
def broken_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    package: ModuleType = request.param
    (tmp_path / "broken_plugin.py").write_text(BROKEN, encoding="utf-8")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    return package


@pytest.mark.parametrize("broken_plugin", [commands], indirect=True)
def test_a_command_that_cannot_be_imported_takes_no_other_away(
    broken_plugin: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "app", typer.Typer())
    cli.register_commands()
    names = {command.name for command in cli.app.registered_commands}
    assert {"report", "compare", "import", "export"} <= names


@pytest.mark.parametrize(
    ("broken_plugin", "name"),
    [
        (formats, "FORMAT"),
        (routes, "ROUTER"),
        *(
            (importlib.import_module(f"collector.{room}"), name)
            for room, name in (("signals", "SIGNAL"), ("sidecar.assemblers", "ASSEMBLER"))
        ),
    ],
    indirect=["broken_plugin"],
)
def test_one_that_cannot_be_imported_takes_no_other_away(broken_plugin: ModuleType, name: str) -> None:
    found = search_room(broken_plugin, name)
    assert [module.name for module in found.broken] == ["broken_plugin"]
    assert len(found.modules) > 2
