"""What `stepscope import` says to bad input: one line, exit code 2, nothing left behind, other runs untouched.

Which input is bad, and why, is told by the other tests of importing.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import run_command
from tests.support.traces import training_steps, write_trace


@pytest.fixture(scope="module")
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base directory that holds a run of two of eight ranks already."""
    folder = tmp_path_factory.mktemp("base")
    job = folder / "job"
    job.mkdir()
    for rank in range(2):
        write_trace(job / f"rank{rank}.json", training_steps(), {"distributedInfo": {"rank": rank, "world_size": 8}})
    assert run_command("import", job, "--summary-base-dir", folder / "runs") == 0
    return folder / "runs"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that is full after 64 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def _check_refused(
    base: Path, traces: list[Path], message: str, capsys: pytest.CaptureFixture[str], *options: str
) -> None:
    before = _list_files(base)
    capsys.readouterr()
    assert run_command("import", *traces, *options, "--summary-base-dir", base) == 2
    said = capsys.readouterr()
    assert (said.out, len(said.err.splitlines())) == ("", 1)
    assert message in said.err
    assert _list_files(base) == before


def _list_files(base: Path) -> dict[str, float]:
    return {str(path.relative_to(base)): path.stat().st_mtime_ns for path in base.rglob("*") if path.is_file()}


def test_what_is_no_trace_is_refused(tmp_path: Path, base_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write_trace(tmp_path / "good.json", training_steps())
    (tmp_path / "odd.json").write_text("epoch 1 loss 0.3\n", encoding="utf-8")
    _check_refused(base_dir, [good, tmp_path / "odd.json"], "is not a trace", capsys)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_is_refused(tmp_path: Path, base_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_trace(tmp_path / "t.json", training_steps())
    path.chmod(0)
    _check_refused(base_dir, [path], "Permission denied", capsys)


def test_full_disk_half_way_leaves_nothing_behind(
    tmp_path: Path, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_trace(tmp_path / "t.json", training_steps(900))
    _check_refused(small_disk, [path], "No space left on device", capsys)
    assert list(small_disk.iterdir()) == []
