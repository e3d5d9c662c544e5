"""Files that are opened for a batch are counted, and `open` works as before."""

from __future__ import annotations

import builtins
import io
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

from collector.ring.stage_log import pack_opened, unpack_opened
from collector.workers.files import OpenCounter
from tests.support.recording import record


class Files(Dataset[Any]):  # type: ignore[misc]
    """Each sample is three small files."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / f"{number}.txt" for number in range(3)]
        for path in self.paths:
            path.write_text("17")

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> int:
        with self.paths[0].open() as first, open(self.paths[1]) as second:
            return int(first.read()) + int(second.read()) + int(Path(self.paths[2]).read_text())


@pytest.mark.parametrize("workers", [0, 1])
def test_the_files_of_a_batch_are_counted(workers: int, tmp_path: Path) -> None:
    before = builtins.open, io.open
    seen: list[int] = []
    loader = DataLoader(Files(tmp_path), 4, num_workers=workers)
    recorded = record(tmp_path / "run", lambda: seen.extend(int(batch.sum()) for batch in loader))
    assert seen == [4 * 51] * 6
    assert (builtins.open, io.open) == before
    rows = [
        row for row in recorded.run.table("stages").to_pylist() if row["stage"] == "read" and row["opened"] is not None
    ]
    assert rows
    assert all(row["opened"] == 12 and 0 < row["open_ns"] < row["duration_ns"] for row in rows)


def test_only_the_thread_of_the_batch_counts(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("1")
    counter = OpenCounter()
    counter.start()
    try:
        thread = threading.Thread(target=lambda: open(path).close())
        thread.start()
        thread.join()
        assert counter.count == 0
        open(path).close()
        assert counter.count == 1
    finally:
        counter.stop()


def test_a_class_that_takes_open_for_an_attribute_can_call_it(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("1")
    counter = OpenCounter()
    counter.start()
    try:

        class Reader:
            opener: Any = open

        kept = Reader()
        assert pickle.loads(pickle.dumps(builtins.open)) is builtins.open
    finally:
        counter.stop()
    with kept.opener(path) as file:
        assert file.read() == "1"


def test_a_later_patch_of_open_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    original, counter = builtins.open, OpenCounter()
    counter.start()
    own = lambda *args, **kwargs: original(*args, **kwargs)  # noqa: E731
    monkeypatch.setattr(builtins, "open", own)
    counter.stop()
    assert builtins.open is own
    monkeypatch.setattr(builtins, "open", original)


def test_counts_and_times_pass_through_the_log() -> None:
    assert unpack_opened(pack_opened(0, 0)) == (0, 0)
    assert unpack_opened(pack_opened(64, 123_456_789)) == (64, 123_456_789)
    assert unpack_opened(pack_opened(1 << 40, 1 << 60)) == ((1 << 24) - 2, (1 << 38) - 1)
    assert unpack_opened(0) is None
