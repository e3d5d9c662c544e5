"""Values that no run has, such as the greatest integer: a panel says so, and the page around it stands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from collector.format import parts
from collector.format.schema import layout
from collector.format.schema.errors import RunError
from collector.format.schema.manifest import RankManifest, RunManifest, decode_manifest
from collector.format.schema.tables import TABLES
from tests.support.asking import Asker
from tests.support.panorama import build_rich

PAGES = ("", "steps", "operators", "operators?group=operators", "operators?group=host", "device", "data")
MORE = ("data?tab=processing", "memory", "ranks", "timeline")
LEAST, GREATEST = -(2**63), 2**63 - 1


def put_everywhere(run: Path, value: int, tables: tuple[str, ...]) -> None:
    """Write a value into every integer of the first two rows."""
    folder = layout.rank_path(run, 0)
    for name in tables:
        if not layout.table_file(folder, name).exists():
            continue
        table = parts.read_table(folder, name)
        for column in (column.name for column in TABLES[name].columns if column.dtype == "int64"):
            at = table.schema.get_field_index(column)
            values = [value] * min(2, len(table)) + table[column].to_pylist()[2:]
            table = table.set_column(at, table.schema.field(at), pa.array(values, pa.int64()))
        parts.write_table(table, layout.table_file(folder, name))


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    base = tmp_path_factory.mktemp("odd")
    for name, value in (("least", LEAST), ("greatest", GREATEST)):
        build_rich(base / name)
        put_everywhere(base / name, value, tuple(TABLES))
        build_rich(base / f"{name}-operators")
        put_everywhere(base / f"{name}-operators", value, ("operators",))
    return Asker(base)


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("run", ["least", "greatest"])
@pytest.mark.parametrize("page", [*PAGES, *MORE])
def test_every_page_stands(odd: Asker, run: str, page: str) -> None:
    answer = odd.ask(f"/runs/{run}/{page}")
    assert answer.status_code == 200
    assert "error-title" not in answer.text


@pytest.mark.parametrize("run", ["least", "greatest"])
def test_the_operators_say_what_is_the_matter(odd: Asker, run: str) -> None:
    text = odd.ask(f"/runs/{run}-operators/operators?group=operators").text
    assert "The operators cannot be" in text
    assert "Kernels" in text


EXTREMES: dict[str, Callable[[Any], Any]] = {
    "empty": lambda value: type(value)() if isinstance(value, (str, list, dict, float)) else 0,
    "negative": lambda value: -1 if isinstance(value, (int, float)) and not isinstance(value, bool) else value,
    "greatest": lambda value: 2**63 - 1 if isinstance(value, int) and not isinstance(value, bool) else value,
    "nothing": lambda value: None,
}


def change_every_field(file: Path, change: Callable[[Any], Any]) -> None:
    """Change each field of a manifest, by itself, for as long as the manifest can be read."""
    kind: Any = RunManifest if file.name == layout.RUN_FILE else RankManifest
    raw = json.loads(file.read_text("utf-8"))
    for owner in [raw, *(entry for value in raw.values() for entry in (value if isinstance(value, list) else [value]))]:
        for name, value in list(owner.items()) if isinstance(owner, dict) else ():
            owner[name] = change(value)
            try:
                decode_manifest(kind, json.dumps(raw), "")
            except RunError:
                owner[name] = value
    file.write_text(json.dumps(raw), encoding="utf-8")


@pytest.fixture(scope="module")
def odd_manifests(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    base = tmp_path_factory.mktemp("manifests")
    for name, change in EXTREMES.items():
        build_rich(base / name)
        for file in (layout.run_file(base / name), layout.rank_file(base / name, 0)):
            change_every_field(file, change)
    return Asker(base)


@pytest.mark.parametrize("run", EXTREMES)
@pytest.mark.parametrize("page", ["", "steps", "device", "data", "data?tab=processing", "memory", "ranks", "timeline"])
def test_every_page_stands_whatever_a_manifest_says(odd_manifests: Asker, run: str, page: str) -> None:
    answer = odd_manifests.ask(f"/runs/{run}/{page}")
    assert answer.status_code == 200
    assert "error-title" not in answer.text
    assert "rule failed" not in answer.text.lower()
