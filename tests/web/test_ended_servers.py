"""An upload that a server accepted becomes a run, whatever ends that server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collector.format.schema.removal import make_folder
from profiler_server.web.uploads import imports as module
from profiler_server.web.uploads import waiting
from profiler_server.web.uploads.imports import MOST_TRIES, UPLOAD_FOLDER, Imports
from tests.support.asking import PATIENCE_S
from tests.support.forking import Forked
from tests.support.traces import build_trace, training_steps
from tests.support.waiting import wait_for

TRACE = json.dumps(build_trace(training_steps(4000))).encode()
"""Takes seconds to import."""
START = """
import signal, sys
for number in (signal.SIGHUP, signal.SIGINT):  # whoever runs the tests may have these ignored
    signal.signal(number, signal.SIG_DFL)
from profiler_server.cli import main
sys.argv[1:] = ["--summary-base-dir", sys.argv[1], "--port", "0"]
if __name__ == "__main__":
    main()
"""


@contextmanager
def serve(base: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a group of processes of its own, as a terminal or a service has it, and its address."""
    script = base.parent / "serve.py"
    script.write_text(START)
    with Forked([sys.executable, str(script), str(base)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield process, next(word.rstrip("/") for word in line.split() if word.startswith("http://"))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def send(address: str, name: str) -> None:
    head = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}.json"\r\n\r\n'
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    request = urllib.request.Request(f"{address}/api/v1/imports", head.encode() + TRACE + b"\r\n--b--\r\n", kind)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        assert answer.status == 202


def is_importing(base: Path) -> bool:
    """Say whether the process of an import has begun to write."""
    return any(base.glob(".a.*"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_an_accepted_upload_is_imported_by_the_next_server_whatever_signal_the_group_gets(
    tmp_path: Path, number: signal.Signals
) -> None:
    base = tmp_path / "runs"
    base.mkdir()
    with serve(base) as (process, address):
        for name in ("a", "b"):
            send(address, name)
        wait_for(lambda: is_importing(base))
        os.killpg(process.pid, number)
        process.wait(PATIENCE_S)
    with serve(base):
        wait_for(lambda: not (base / UPLOAD_FOLDER).exists())
    assert sorted(path.name for path in base.iterdir() if not path.name.startswith(".")) == ["a", "b"]


def test_an_upload_that_servers_die_of_is_given_up_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "import_files", None)  # which is not reached
    folder = tmp_path / UPLOAD_FOLDER / ("0" * 16)
    folder.mkdir(parents=True)
    (folder / "a.json").write_bytes(b"{}")
    waiting.accept(folder, [folder / "a.json"])
    for _ in range(MOST_TRIES):
        waiting.count_try(folder)
    imports = Imports(tmp_path)
    imports.resume()
    job = imports.find("0" * 16)
    assert job is not None
    wait_for(lambda: (found := imports.find("0" * 16)) is not None and found.state == "failed")
    assert "servers ended while they imported this" in str(getattr(imports.find("0" * 16), "error", ""))
    assert not (tmp_path / UPLOAD_FOLDER).exists()


def test_a_folder_is_made_while_another_upload_takes_the_last_one_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imports = Imports(tmp_path)

    def take_away(room: Path) -> None:
        make_folder(room)
        monkeypatch.undo()
        room.rmdir()

    monkeypatch.setattr(module, "make_folder", take_away)
    assert imports.make_folder().is_dir()
