"""A file is the old one or the new one, whatever fails while it is written, and nothing else stays beside it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from collector.format.schema.writing import replace_text, replacing, sync_tree, write_output


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_what_was_there_stays_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    replace_text(tmp_path / "file", "old")

    def refuse(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, failing, refuse)
    with pytest.raises(OSError, match="No space"):
        replace_text(tmp_path / "file", "new", durable=True)
    assert (tmp_path / "file").read_text() == "old"
    assert list_names(tmp_path) == ["file"]


def test_an_error_of_the_writer_changes_nothing(tmp_path: Path) -> None:
    replace_text(tmp_path / "file", "old")

    def write() -> None:
        with replacing(tmp_path / "file") as file:
            file.write(b"half")
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write()
    assert (tmp_path / "file").read_text() == "old"
    assert list_names(tmp_path) == ["file"]


def test_a_name_of_the_greatest_length_can_be_written(tmp_path: Path) -> None:
    for name in ("é" * 127, "x" * 255):
        replace_text(tmp_path / name, "text")
        assert (tmp_path / name).read_text() == "text"


def test_a_durable_file_and_its_name_are_synced_before_anything_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_sync(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def note_replace(source: str, target: str, **folders: int) -> None:
        done.append("rename")
        replace(source, target, **folders)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    replace_text(tmp_path / "file", "text", durable=True)
    assert done == ["file", "rename", "folder"]
    done.clear()
    sync_tree(tmp_path)
    assert done == ["file", "folder"]


def test_what_is_written_for_a_user_goes_into_a_pipe_and_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    write_output(tmp_path / "link", "new")
    assert (tmp_path / "target").read_text() == "new"
    assert (tmp_path / "link").is_symlink()
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_output(tmp_path / "pipe", "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    write_output(tmp_path / "plain", "text")
    assert (tmp_path / "plain").read_text() == "text"
