"""What `profiler-server import` says to bad input: one line, exit code 2, nothing left behind, other runs untouched."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.traces import training_steps, write_trace


@pytest.fixture
def base_dir(tmp_path: Path) -> Path:
    """A base directory that holds a run already."""
    base = tmp_path / "runs"
    assert _import(base, [write_trace(tmp_path / "good.json", training_steps())]).returncode == 0
    return base


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


def _import(base: Path, traces: list[Path], *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "profiler_server.cli", "import", *map(str, traces), *options]
    return subprocess.run([*command, "--summary-base-dir", base], capture_output=True, text=True, timeout=300)


def _check_refused(base: Path, traces: list[Path], message: str, *options: str) -> None:
    before = _list_files(base)
    found = _import(base, traces, *options)
    assert found.returncode == 2
    assert len(found.stderr.splitlines()) == 1
    assert message in found.stderr
    assert found.stdout == ""
    assert _list_files(base) == before


def _list_files(base: Path) -> dict[str, float]:
    return {str(path.relative_to(base)): path.stat().st_mtime_ns for path in base.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"epoch 1 loss 0.3\n", "is not a trace"),
        (b"", "is empty"),
        (b'{"loss": [1, 2, 3]}', "is not a trace"),
        (b'{"traceEvents": "none"}', "is not a trace"),
        (b"[1, 2, 3]", "is not a trace"),
        (bytes(range(256)) * 16, "is not a trace"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0), "without a single event"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, base_dir: Path, content: bytes, message: str) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    _check_refused(base_dir, [path], message)


def test_two_files_of_one_rank_are_refused(tmp_path: Path, base_dir: Path) -> None:
    told = {"distributedInfo": {"rank": 3, "world_size": 8}}
    traces = [write_trace(tmp_path / f"{name}.json", training_steps(), told) for name in "ab"]
    _check_refused(base_dir, traces, "both of rank 3")


def test_folder_of_ranks_is_one_run(tmp_path: Path, base_dir: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(2):
        write_trace(folder / f"rank{rank}.json", training_steps(), {"distributedInfo": {"rank": rank, "world_size": 8}})
    found = _import(base_dir, [folder])
    assert (found.returncode, found.stdout.split(" as ")[0]) == (0, "Imported 2 of 8 ranks")


def test_folder_without_a_trace_is_refused(tmp_path: Path, base_dir: Path) -> None:
    (tmp_path / "empty").mkdir()
    _check_refused(base_dir, [tmp_path / "empty"], "without a trace file")


def test_file_that_is_not_there_is_refused(tmp_path: Path, base_dir: Path) -> None:
    _check_refused(base_dir, [tmp_path / "nothing.json"], "does not exist")


def test_steps_that_the_trace_has_not_are_refused(tmp_path: Path, base_dir: Path) -> None:
    path = write_trace(tmp_path / "t.json", training_steps())
    _check_refused(base_dir, [path], "fits the name of no slice", "--steps-from", "^no such step$")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_is_refused(tmp_path: Path, base_dir: Path) -> None:
    path = write_trace(tmp_path / "t.json", training_steps())
    path.chmod(0)
    _check_refused(base_dir, [path], "Permission denied")


def test_full_disk_half_way_leaves_nothing_behind(tmp_path: Path, small_disk: Path) -> None:
    path = write_trace(tmp_path / "t.json", training_steps(900))
    _check_refused(small_disk, [path], "No space left on device")
    assert list(small_disk.iterdir()) == []
