"""Which commit a script was of: asked of git once beside the training, kept over a change of the recorder."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from collector.format.schema import layout
from collector.notes import Notes, write_notes
from collector.ring.clock import Clock
from collector.sidecar.assemblers.checkout import CheckoutAssembler, find_script_folder, read_checkout


def make_checkout(folder: Path) -> str:
    """Make a git checkout with one committed script, and return the commit."""
    folder.mkdir()
    (folder / "train.py").write_text("import sys; print('ready', flush=True); sys.stdin.read()\n")
    as_us = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    for words in (("init", "-q"), ("add", "train.py"), (*as_us, "commit", "-q", "-m", "Train")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_commit_is_known_and_whether_tracked_files_differ_from_it(tmp_path: Path) -> None:
    commit = make_checkout(tmp_path / "code")
    (tmp_path / "code/notes.txt").write_text("not tracked")
    assert read_checkout(tmp_path / "code") == {"commit": commit, "is_dirty": False}
    (tmp_path / "code/train.py").write_text("changed")
    assert read_checkout(tmp_path / "code") == {"commit": commit, "is_dirty": True}


def test_no_filter_of_the_users_settings_is_started(tmp_path: Path) -> None:
    commit = make_checkout(tmp_path / "code")
    (tmp_path / "code/.git/info").mkdir(exist_ok=True)
    (tmp_path / "code/.git/info/attributes").write_text("*.py filter=own\n")
    for name, value in (("clean", f"touch {tmp_path}/started; cat"), ("required", "true")):
        subprocess.run(["git", "config", f"filter.own.{name}", value], cwd=tmp_path / "code", check=True)
    text = (tmp_path / "code/train.py").read_text()
    (tmp_path / "code/train.py").write_text(text.upper())  # of the same length: git reads it
    assert read_checkout(tmp_path / "code") == {"commit": commit, "is_dirty": True}
    assert not (tmp_path / "started").exists()


def test_a_folder_outside_of_git_and_one_without_a_commit_have_none(tmp_path: Path) -> None:
    assert read_checkout(tmp_path) == {}
    subprocess.run(["git", "init", "-q", str(tmp_path / "new")], check=True)
    assert read_checkout(tmp_path / "new") == {}
    assert read_checkout(tmp_path / "gone") == {}


def test_rank_0_alone_asks_and_what_it_learned_outlives_its_recorder(tmp_path: Path) -> None:
    commit = make_checkout(tmp_path / "code")
    script = tmp_path / "code/train.py"
    with subprocess.Popen(
        [sys.executable, str(script)], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as trainer:
        assert trainer.stdout is not None
        trainer.stdout.readline()
        assert find_script_folder(trainer.pid) == script.parent.resolve()
        found = [_follow(tmp_path / "run", rank, trainer.pid) for rank in (0, 1)]
        deadline = time.monotonic() + 60.0
        while not found[0].describe() and time.monotonic() < deadline:
            time.sleep(0.02)
        trainer.communicate()
    assert found[0].describe() == {"facts": {"checkout": {"commit": commit, "is_dirty": False}}}
    assert found[1].describe() == {}
    found[1].restore(found[0].checkpoint())
    assert found[1].describe() == found[0].describe()


def _follow(path: Path, rank: int, trainer: int) -> CheckoutAssembler:
    folder = layout.rank_path(path, rank)
    layout.events_path(folder).mkdir(parents=True)
    write_notes(Notes(rank, trainer, None, "here", 1, 1, 1, 1), folder)
    assembler = CheckoutAssembler(folder, Clock.start())
    assembler.follow(trainer)
    return assembler
