"""A recording in a bad place: no room, no directory, no stderr, another process."""

from __future__ import annotations

import errno
import gc
import os
import sys
from pathlib import Path

import pytest

from collector import Profiler
from collector.format.schema.errors import RunError
from tests.support import forking, shapes

pytestmark = pytest.mark.usefixtures("alone")


def test_a_path_that_cannot_be_written_is_one_warning_and_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    profiler = Profiler(tmp_path / "file" / "run", window=None)
    shapes.plain()
    profiler.step()
    run = profiler.analyse()
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 1
    assert "nothing is recorded" in warnings[0]
    assert "cannot be written" in warnings[0]
    with pytest.raises(RunError):
        run.manifest  # noqa: B018


def test_a_forked_child_records_nothing_and_its_calls_do_nothing(profiler: Profiler) -> None:
    optimizer = shapes.sgd(shapes.Net())
    child = os.fork()
    if not child:
        code = 1
        try:
            # Nothing that computes: torch's own threads do not survive a fork.
            optimizer.zero_grad()
            optimizer.step()
            gc.collect()
            profiler.step()
            profiler.stop()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    steps = profiler.analyse().frame("steps")
    assert (steps.kind == "train").sum() == 0


def test_a_script_that_is_run_again_to_spawn_records_once(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import multiprocessing\n"
        "from collector import Profiler\n"
        f"profiler = Profiler({str(tmp_path / 'run')!r}, window=None)\n"
        "def work(): pass\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    child.start(); child.join()\n"
        "    print(child.exitcode, profiler.analyse().state)\n"
    )
    done = forking.run([sys.executable, script])
    assert done.stdout.split() == ["0", "complete"], done.stderr
    assert not (tmp_path / "run" / "earlier").exists()


def test_a_full_disk_is_one_warning_and_leaves_no_empty_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    profiler = Profiler(tmp_path / "run", window=None)
    shapes.plain()
    profiler.analyse()
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 1
    assert "No space left on device" in warnings[0]
    assert not (tmp_path / "run").exists()


def test_a_script_that_closed_its_stderr_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / "stderr", "w", encoding="utf-8") as closed:
        pass
    monkeypatch.setattr(sys, "stderr", closed)
    (tmp_path / "file").touch()
    profiler = Profiler(tmp_path / "file", window=None)
    shapes.plain()
    assert profiler.analyse().path == tmp_path / "file"


def test_a_script_that_changes_its_directory_finds_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    profiler = Profiler("run", window=None)
    shapes.plain()
    monkeypatch.chdir("/")
    assert profiler.analyse().rank(0).count_steps() == 10


def test_a_script_without_stderr_keeps_its_stdout_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    profiler = Profiler(tmp_path, window=None)
    profiler.analyse()
    assert capsys.readouterr().out == ""
