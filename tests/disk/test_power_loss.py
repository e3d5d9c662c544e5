"""What was flushed outlives a loss of power at any moment."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.disk.forgetting import Disk, Operation
from tests.disk.losing import lose_everywhere, record_watched
from tests.disk.watching import COMPILER

BASE = "/base"


def write(path: str, data: bytes) -> Operation:
    return Operation("write", path, "", 0, data)


def do(kind: str, path: str, other: str = "") -> Operation:
    return Operation(kind, path, other, 0, b"")


def test_a_disk_forgets_contents_and_names_that_were_not_synced(tmp_path: Path) -> None:
    disk = Disk(BASE)
    for operation in (
        do("create", "/base/a"), write("/base/a", b"one"), do("sync", "/base/a"), do("sync", "/base"),
        write("/base/a", b"two"), do("create", "/base/b"), do("rename", "/base/b", "/base/c"),
    ):  # fmt: skip
        disk.apply(operation)
    disk.lose_power("all", tmp_path / "all")
    disk.lose_power("contents", tmp_path / "contents")
    assert {path.name: path.read_bytes() for path in (tmp_path / "all").iterdir()} == {"a": b"one"}
    assert {path.name: path.read_bytes() for path in (tmp_path / "contents").iterdir()} == {"a": b"one", "c": b""}


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_what_was_flushed_outlives_a_loss_of_power_after_any_operation(tmp_path: Path) -> None:
    operations = record_watched(tmp_path)
    first = next(number for number, one in enumerate(operations) if one.kind == "note")
    prefixes = random.Random(1).sample(range(first, len(operations) + 1), 4)
    assert lose_everywhere(operations, tmp_path, prefixes) == []
