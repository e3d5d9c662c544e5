"""A manifest that somebody else wrote, or a disk spoilt: one run is refused, with a reason; the others are listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collector.format.schema import layout
from profiler_server.store.catalog import Catalog
from tests.support.runs import RunPlan, build_run


def list_beside_good(tmp_path: Path, text: str) -> tuple[list[str], list[str]]:
    """Return the ids that are listed and the ids that are refused."""
    build_run(tmp_path / "good", RunPlan(steps=4))
    layout.run_file(build_run(tmp_path / "bad", RunPlan(steps=4))).write_text(text, encoding="utf-8")
    listing = Catalog(tmp_path).list_runs()
    return [entry.id for entry in listing.runs], [entry.id for entry in listing.unreadable]


@pytest.mark.parametrize("text", ["", "null", "[1]", "[" * 100_000, '{"a":' * 100_000])
def test_what_is_no_manifest_is_refused_alone(tmp_path: Path, text: str) -> None:
    assert list_beside_good(tmp_path, text) == (["good"], ["bad"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("created_unix_ns", 10**40),
        ("created_unix_ns", float("nan")),
        ("created_unix_ns", "now"),
        ("name", 5),
        ("world_size", "8"),
        ("epoch_unix_ns", 2**63),
    ],
)
def test_field_of_the_wrong_kind_is_refused_alone(tmp_path: Path, field: str, value: Any) -> None:
    build_run(tmp_path / "model", RunPlan(steps=4))
    manifest = json.loads(layout.run_file(tmp_path / "model").read_text(encoding="utf-8"))
    layout.run_file(tmp_path / "model").unlink()
    assert list_beside_good(tmp_path, json.dumps({**manifest, field: value})) == (["good"], ["bad"])
