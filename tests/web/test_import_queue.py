"""Uploads wait their turn, can be cancelled, outlive the server, and take no more memory than they may."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from profiler_server.web.uploads import imports as module
from profiler_server.web.uploads.imports import UPLOAD_FOLDER, Import, Imports
from profiler_server.web.uploads.process import Work
from tests.support.asking import PATIENCE_S, Asker
from tests.support.traces import build_trace, training_steps
from tests.support.waiting import wait_for

TRACE = json.dumps(build_trace(training_steps())).encode()
LONG_S = 600.0


def stand_still(work: Work, sender: Connection) -> None:
    """An import that never ends."""
    sender.send(("progress", 0.5))
    time.sleep(LONG_S)


def take_memory(work: Work, sender: Connection) -> None:
    """An import that holds 400 MiB."""
    held = bytearray(b"x") * (400 << 20)
    time.sleep(LONG_S if held else 0)


@pytest.fixture
def asker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asker]:
    """A server whose imports never end."""
    monkeypatch.setattr(module, "import_files", stand_still)
    asker = Asker(tmp_path)
    yield asker
    asker.app.state.services.imports.close()


def _send(imports: Imports, name: str) -> Import:
    folder = imports.make_folder()
    (folder / "0").mkdir()
    path = folder / "0" / f"{name}.json"
    path.write_bytes(TRACE)
    return imports.start(folder, [path])


def _wait(imports: Imports, job: Import, *states: str) -> Import:
    deadline = time.monotonic() + PATIENCE_S
    while (found := imports.find(job.id)) is not None and found.state not in states and time.monotonic() < deadline:
        time.sleep(0.02)
    assert found is not None
    assert found.state in states
    return found


def test_one_that_waits_is_told_how_many_come_before_it(asker: Asker) -> None:
    imports: Imports = asker.app.state.services.imports
    jobs = [_send(imports, name) for name in "abc"]
    _wait(imports, jobs[0], "importing")
    ahead = [asker.ask(f"/api/v1/imports/{job.id}").json()["ahead"] for job in jobs]
    assert ahead == [0, 1, 2]


def test_an_import_can_be_cancelled_while_it_runs_and_while_it_waits(asker: Asker, tmp_path: Path) -> None:
    imports: Imports = asker.app.state.services.imports
    running, waiting = _send(imports, "a"), _send(imports, "b")
    _wait(imports, running, "importing")
    for job in (waiting, running):
        answer = asker.ask(f"/api/v1/imports/{job.id}", "DELETE")
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    assert asker.ask(f"/api/v1/imports/{running.id}", "DELETE").status_code == 409
    assert asker.ask("/api/v1/imports/none", "DELETE").status_code == 404
    wait_for(lambda: not (tmp_path / UPLOAD_FOLDER).exists())
    assert asker.ask(f"/api/v1/imports/{running.id}").json()["state"] == "cancelled"
    assert list(tmp_path.iterdir()) == []


def test_what_was_accepted_is_imported_by_the_next_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "import_files", stand_still)
        first = Imports(tmp_path)
        jobs = [_send(first, name) for name in ("a", "b")]
        _wait(first, jobs[0], "importing")
        first.close()
        assert first._pool is not None
        first._pool.shutdown(wait=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [UPLOAD_FOLDER]
    second = Imports(tmp_path)
    second.resume()
    assert [_wait(second, job, "done", "failed").run_id for job in jobs] == ["a", "b"]
    wait_for(lambda: not (tmp_path / UPLOAD_FOLDER).exists())


def test_two_servers_import_an_upload_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "import_files", stand_still)
    first, second = Imports(tmp_path), Imports(tmp_path)
    jobs = [_send(first, name) for name in ("a", "b")]
    _wait(first, jobs[0], "importing")
    second.resume()
    _wait(second, jobs[1], "importing")
    assert second.find(jobs[0].id) is None
    first.cancel(jobs[0].id)
    assert "another server" in str(_wait(first, jobs[1], "failed").error)
    second.cancel(jobs[1].id)
    wait_for(lambda: not (tmp_path / UPLOAD_FOLDER).exists())


@pytest.mark.parametrize("names", [["../../outside.json"], ["/etc/hostname"], ["0/link.json"], [], [5], {}])
def test_a_list_of_uploads_cannot_name_other_files(tmp_path: Path, names: object) -> None:
    (tmp_path / "outside.json").write_bytes(TRACE)
    folder = tmp_path / UPLOAD_FOLDER / ("0" * 16)
    (folder / "0").mkdir(parents=True)
    (folder / "0/link.json").symlink_to(tmp_path / "outside.json")
    (folder / "accepted.json").write_text(json.dumps(names))
    imports = Imports(tmp_path)
    imports.resume()
    assert imports.find("0" * 16) is None


def test_an_import_that_takes_too_much_memory_is_ended_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "import_files", take_memory)
    imports = Imports(tmp_path, memory_bytes=200 << 20)
    ended = _wait(imports, _send(imports, "a"), "failed")
    assert "more than the 200 MiB of memory" in str(ended.error)
    assert "stepscope import" in str(ended.error)
    wait_for(lambda: not (tmp_path / UPLOAD_FOLDER).exists())
