"""Who may read a run: its user alone, unless the place is shared. Files of the user's own stay as the umask says."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.format.schema import modes
from collector.format.schema.layout import profiler_path, rank_path
from collector.format.schema.removal import ensure_run_folder
from collector.format.schema.writing import replace_text, write_output
from collector.storage.uploading import RankUpload
from collector.traces.importing import import_trace
from profiler_server.derive.records import FILE_NAME, Summaries
from tests.support.asking import Asker
from tests.support.runs import build_run
from tests.support.scripts import run_script
from tests.support.traces import training_steps, write_trace
from tests.unit.launch.programs import LOOP, run_launcher, write_script

_SCRIPT = """
import os, time
import torch
from collector import Profiler
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
open("before", "w").close()
recording = Profiler("runs/deep/a", window=(2, 3), keep_events=True, stacks=True)
with recording:
    for _ in range(60):
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        time.sleep(0.01)
    open("runs/deep/a/weights.pt", "w").close()
os.makedirs("after", exist_ok=True)
"""


@pytest.fixture(autouse=True)
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the usual umask, and a place that is not shared."""
    monkeypatch.delenv(modes.VARIABLE, raising=False)
    before = os.umask(0o022)
    yield
    os.umask(before)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _list_modes(folder: Path) -> set[tuple[str, int]]:
    """Return the modes of the folders and files below a folder, and its own."""
    paths = [folder, *folder.rglob("*")]
    return {("folder" if path.is_dir() else "file", _mode(path)) for path in paths if not path.is_symlink()}


def test_a_run_is_its_users_alone_and_other_files_stay_as_they_would_be(tmp_path: Path) -> None:
    run_script(tmp_path, _SCRIPT)
    run = tmp_path / "runs/deep/a"
    assert [path.name for path in (run / "profiler/rank_0/events").glob("*.trace.json")]
    assert _list_modes(profiler_path(run)) == {("folder", 0o700), ("file", 0o600)}
    assert (_mode(run), _mode(tmp_path / "runs/deep"), _mode(tmp_path / "runs")) == (0o700, 0o755, 0o755)
    assert (_mode(run / "weights.pt"), _mode(tmp_path / "before"), _mode(tmp_path / "after")) == (0o644, 0o644, 0o755)
    run_script(tmp_path, _SCRIPT)
    assert _list_modes(run / "earlier") == {("folder", 0o700), ("file", 0o600)}


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "runs/deep/a").mkdir(parents=True)
    run_script(tmp_path, _SCRIPT)
    assert _mode(tmp_path / "runs/deep/a") == 0o755
    assert _list_modes(tmp_path / "runs/deep/a/profiler") == {("folder", 0o700), ("file", 0o600)}


def test_a_run_that_is_to_be_shared_is_as_the_umask_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(modes.VARIABLE, "1")
    run_script(tmp_path, _SCRIPT)
    found = _list_modes(tmp_path / "runs/deep/a")
    private = {path.suffix for path in (tmp_path / "runs").rglob("*") if path.is_file() and _mode(path) == 0o600}
    assert found - {("file", 0o600)} == {("folder", 0o755), ("file", 0o644)}
    assert private <= {".ring", ".lock"}  # what only the recorder reads


@pytest.mark.parametrize(
    ("mode", "group", "expected"),
    [(0o2775, 7, 0o755), (0o1777, 7, 0o700), (0o755, 7, 0o700), (0o775, None, 0o700)],
)
def test_a_place_in_which_another_group_may_write_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, group: int | None, expected: int
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(mode)
    user = place.stat().st_gid if group is None else place.stat().st_gid + group
    monkeypatch.setattr(modes, "_find_user", lambda: user)  # a user's own group has the user's number
    ensure_run_folder(place / "a", "profiler")
    assert (_mode(place / "a") & 0o777, _mode(place / "a/profiler") & 0o777) == (expected, expected)
    assert _mode(place) == mode


def test_a_narrower_umask_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(modes.VARIABLE, "1")
    os.umask(0o077)
    ensure_run_folder(tmp_path / "a")
    replace_text(tmp_path / "a/x", "")
    assert (_mode(tmp_path / "a"), _mode(tmp_path / "a/x")) == (0o700, 0o600)


def test_what_a_server_keeps_in_a_run_is_as_open_as_the_run(tmp_path: Path) -> None:
    import_trace(write_trace(tmp_path / "t.json", training_steps()), tmp_path / "base/a")
    assert _list_modes(tmp_path / "base/a") == {("folder", 0o700), ("file", 0o600)}
    assert Asker(tmp_path / "base").ask("/runs/a/timeline").status_code == 200
    assert list((tmp_path / "base/a/profiler/rank_0/.timeline").iterdir())
    assert _list_modes(tmp_path / "base/a") == {("folder", 0o700), ("file", 0o600)}
    assert _mode(tmp_path / "base") == 0o755


def test_an_imported_run_that_is_to_be_shared_is_as_the_umask_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(modes.VARIABLE, "1")
    import_trace(write_trace(tmp_path / "t.json", training_steps()), tmp_path / "base/a")
    assert Asker(tmp_path / "base").ask("/runs/a/timeline").status_code == 200
    assert _list_modes(tmp_path / "base/a") == {("folder", 0o755), ("file", 0o644)}


def test_a_copy_in_another_folder_is_private_too(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    run = build_run(tmp_path / "here")
    RankUpload(rank_path(run, 0), f"file://{tmp_path}/there/a").finish()
    assert _list_modes(tmp_path / "there/a") == {("folder", 0o700), ("file", 0o600)}
    assert _mode(tmp_path / "there") == 0o755


def test_summaries_of_runs_are_as_private_as_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Summaries[int](tmp_path, int).write([])
    assert _mode(tmp_path / FILE_NAME) == 0o600
    monkeypatch.setenv(modes.VARIABLE, "1")
    Summaries[int](tmp_path, int).write([])
    assert _mode(tmp_path / FILE_NAME) == 0o644


def test_a_file_that_was_asked_for_is_as_the_umask_says(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    write_output(tmp_path / "report.html", "text")
    assert _mode(tmp_path / "report.html") == 0o644


def test_what_the_launcher_makes_is_private_too(tmp_path: Path) -> None:
    assert run_launcher(tmp_path, "-o", "r", write_script(tmp_path, LOOP)).returncode == 0
    assert _list_modes(tmp_path / "r") == {("folder", 0o700), ("file", 0o600)}
