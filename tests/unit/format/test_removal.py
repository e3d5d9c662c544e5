"""What is removed is ours, by name, mark and number; links, mounts and what others put there stay."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.format.schema import removal
from collector.format.schema.inside import RefusedError, find_link, open_inside
from collector.format.schema.removal import (
    SCRATCH_FILE,
    Abandoned,
    Made,
    Marked,
    make_folder,
    make_scratch,
    move,
    remove_empty,
    remove_file,
    remove_tree,
    replace,
    scratch_folder,
)
from collector.format.schema.writing import replace_text

STAMPED = Marked(re.compile("[0-9a-f]{4}"), ("mark",))
LEFT = Abandoned(re.compile("left-[0-9]"), after_s=3600.0)


def make_stranger(folder: Path) -> Path:
    """Make somebody's folder, which must stay as it is."""
    folder.mkdir(parents=True)
    (folder / "thesis.txt").write_text("years")
    return folder


def make_tree(folder: Path) -> Path:
    """Make a folder that has the form of ours."""
    (folder / "inner").mkdir(parents=True)
    (folder / "inner/file").write_text("text")
    (folder / "mark").touch()
    return folder


def name_stranger_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("part", ["profiler", "profiler/rank_0", "profiler/rank_0/steps"])
@pytest.mark.parametrize(
    "do",
    [
        lambda path: remove_file(path),
        lambda path: replace_text(path, "ours"),
        lambda path: remove_tree(path, Marked(re.compile(".*"))),
        lambda path: replace(path, path.with_name("other")),
        lambda path: make_folder(path.with_name("new")),
        lambda path: os.close(open_inside(path)),
    ],
    ids=["remove", "write", "remove a tree", "replace", "make", "open"],
)
def test_no_link_below_a_run_is_followed(tmp_path: Path, part: str, do: Callable[[Path], object]) -> None:
    run = tmp_path / "run"
    stranger = make_stranger(tmp_path / "stranger/rank_0/steps").parents[1]
    inner = {"profiler": stranger, "profiler/rank_0": stranger / "rank_0"}.get(part, stranger / "rank_0/steps")
    (run / part).parent.mkdir(parents=True)
    (run / part).symlink_to(inner)
    with pytest.raises(RefusedError, match="link"):
        do(run / "profiler/rank_0/steps/thesis.txt")
    assert name_stranger_in(stranger / "rank_0/steps") == ["thesis.txt"]
    assert (stranger / "rank_0/steps/thesis.txt").read_text() == "years"


def test_a_run_may_be_reached_by_a_link_of_its_user(tmp_path: Path) -> None:
    (tmp_path / "real/profiler/rank_0").mkdir(parents=True)
    (tmp_path / "run").symlink_to(tmp_path / "real")
    replace_text(tmp_path / "run/profiler/rank_0/rank.json", "{}")
    assert (tmp_path / "real/profiler/rank_0/rank.json").read_text() == "{}"
    assert find_link(tmp_path / "run") is None


def test_a_link_in_a_tree_is_removed_as_a_name(tmp_path: Path) -> None:
    stranger = make_stranger(tmp_path / "stranger")
    tree = make_tree(tmp_path / "abcd")
    (tree / "inner/link").symlink_to(stranger)
    (tree / "inner/file link").symlink_to(stranger / "thesis.txt")
    remove_tree(tree, STAMPED)
    assert not tree.exists()
    assert (stranger / "thesis.txt").read_text() == "years"


def test_a_link_in_the_place_of_a_tree_is_refused(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "there")
    (tmp_path / "abcd").symlink_to(tree)
    with pytest.raises(RefusedError, match="a link or a file"):
        remove_tree(tmp_path / "abcd", STAMPED)
    assert (tree / "inner/file").exists()


@pytest.mark.parametrize("name", ["ABCD", "abcd.backup", "abcde", "xabcd", "abcd\n"])
def test_a_folder_of_another_name_is_left_alone(tmp_path: Path, name: str) -> None:
    tree = make_tree(tmp_path / name)
    with pytest.raises(RefusedError, match="none that Stepscope gives"):
        remove_tree(tree, STAMPED)
    assert (tree / "inner/file").exists()


def test_a_name_that_the_disk_has_in_another_case_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the case counts, so what a file system that ignores it lists is put in the place of the listing."""
    tree = make_tree(tmp_path / "abcd")
    listing = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: [name.replace("abcd", "ABCD") for name in listing(folder)])
    with pytest.raises(FileNotFoundError):
        remove_tree(tree, STAMPED)
    assert (tree / "inner/file").exists()


@pytest.mark.parametrize("mark", ["none", "link", "folder"])
def test_a_folder_without_our_mark_is_left_alone(tmp_path: Path, mark: str) -> None:
    tree = make_tree(tmp_path / "abcd")
    (tree / "mark").unlink()
    if mark == "link":
        (tree / "mark").symlink_to(tree / "inner/file")
    elif mark == "folder":
        (tree / "mark").mkdir()
    with pytest.raises(RefusedError, match="holds no mark"):
        remove_tree(tree, STAMPED)
    assert (tree / "inner/file").exists()


def test_another_folder_in_the_place_of_the_one_that_was_made_is_left_alone(tmp_path: Path) -> None:
    scratch = make_scratch(tmp_path, ".a.")
    scratch.path.rename(tmp_path / "moved")
    make_stranger(scratch.path)
    scratch.remove()
    assert (scratch.path / "thesis.txt").exists()
    with pytest.raises(RefusedError, match="another folder stands in its place"):
        remove_tree(scratch.path, Made.decode(scratch.made.encode()))
    assert (tmp_path / "moved").is_dir()


def test_a_folder_that_is_changed_for_a_link_while_it_is_removed_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = make_stranger(tmp_path / "stranger")
    tree = make_tree(tmp_path / "abcd")
    look = os.lstat

    def change(name: str, *, dir_fd: int | None = None) -> os.stat_result:
        found = look(name, dir_fd=dir_fd)
        if name == "inner" and not (tree / "inner").is_symlink():
            (tree / "inner").rename(tmp_path / "aside")
            (tree / "inner").symlink_to(stranger)
        return found

    monkeypatch.setattr(os, "lstat", change)
    with pytest.raises(RefusedError, match="a link or a file"):
        remove_tree(tree, STAMPED)
    monkeypatch.undo()
    assert (stranger / "thesis.txt").read_text() == "years"
    assert (tmp_path / "aside/file").exists()


def test_a_whole_path_that_is_changed_for_a_link_while_it_is_walked_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = tmp_path / "run/profiler/rank_0"
    (rank / "steps").mkdir(parents=True)
    (rank / "steps/000000.parquet").touch()
    (tmp_path / "stranger/steps").mkdir(parents=True)
    (tmp_path / "stranger/steps/000000.parquet").touch()
    remove = os.unlink

    def change(name: str, *, dir_fd: int | None = None) -> None:
        rank.rename(tmp_path / "aside")
        rank.symlink_to(tmp_path / "stranger")
        remove(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", change)
    remove_file(rank / "steps/000000.parquet")
    monkeypatch.undo()
    assert (tmp_path / "stranger/steps/000000.parquet").exists()
    assert not (tmp_path / "aside/steps/000000.parquet").exists()


def test_a_mount_stays_and_the_rest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No right to mount is needed: the number of a mount is replaced. The next test mounts where it may."""
    tree = make_tree(tmp_path / "abcd")
    (tree / "mounted").mkdir()
    (tree / "mounted/file").touch()
    number, find = (tree / "mounted").stat().st_ino, removal.find_mount
    monkeypatch.setattr(
        removal, "find_mount", lambda folder: (0, 0) if os.fstat(folder).st_ino == number else find(folder)
    )
    with pytest.raises(RefusedError, match="another device"):
        remove_tree(tree, STAMPED)
    assert (tree / "mounted/file").exists()
    assert not (tree / "inner").exists()


_MOUNTED = """
import re, subprocess, sys
from pathlib import Path
from collector.format.schema.removal import Marked, remove_tree
folder = Path(sys.argv[1])
words = {"bind": ["--bind", str(folder / "stranger")], "tmpfs": ["-t", "tmpfs", "none"]}[sys.argv[2]]
subprocess.run(["mount", *words, str(folder / "abcd/inner")], check=True)
(folder / "abcd/inner/file").write_text("theirs")
try:
    remove_tree(folder / "abcd", Marked(re.compile("abcd")))
except OSError as error:
    print(error)
print((folder / "abcd/inner/file").exists())
"""


@pytest.mark.parametrize("kind", ["bind", "tmpfs"])
def test_what_is_mounted_in_a_tree_stays(tmp_path: Path, kind: str) -> None:
    make_tree(tmp_path / "abcd")
    (tmp_path / "stranger").mkdir()
    words = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("this system lets no mount be made")
    done = subprocess.run(
        [*words, sys.executable, "-c", _MOUNTED, str(tmp_path), kind], capture_output=True, text=True, check=True
    )
    assert "lies on another device" in done.stdout
    assert done.stdout.endswith("True\n")


def test_trees_that_are_nested_too_deep_are_refused(tmp_path: Path) -> None:
    deep = tmp_path.joinpath("abcd", *["d"] * 300)
    deep.mkdir(parents=True)
    (tmp_path / "abcd/mark").touch()
    with pytest.raises(RefusedError, match="folders lie in each other"):
        remove_tree(tmp_path / "abcd", STAMPED)
    assert deep.exists()


def test_a_file_with_a_second_name_keeps_its_content_there(tmp_path: Path) -> None:
    rank = tmp_path / "profiler/rank_0"
    rank.mkdir(parents=True)
    (tmp_path / "thesis.txt").write_text("years")
    os.link(tmp_path / "thesis.txt", rank / "rank.json")
    replace_text(rank / "rank.json", "ours")
    assert ((rank / "rank.json").read_text(), (tmp_path / "thesis.txt").read_text()) == ("ours", "years")
    os.link(tmp_path / "thesis.txt", rank / "steps.parquet")
    remove_file(rank / "steps.parquet")
    assert (tmp_path / "thesis.txt").read_text() == "years"


def test_a_file_in_the_place_of_the_one_that_is_written_first_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thesis.txt").write_text("years")
    partial = tmp_path / ".partial"
    monkeypatch.setattr("collector.format.schema.writing.name_partial", lambda path: partial)
    for put in (partial.symlink_to, partial.hardlink_to):
        put(tmp_path / "thesis.txt")
        replace_text(tmp_path / "file", "ours")
        assert (tmp_path / "thesis.txt").read_text() == "years"
        assert not partial.exists()


@pytest.mark.parametrize(
    ("owner", "is_left"),
    [
        ({"pid": os.getpid()}, True),
        ({"pid": 1 << 22}, False),
        ({"pid": 1 << 22, "host": "another"}, True),
        ({"pid": "none"}, True),
        ("text", True),
    ],
)
def test_a_scratch_folder_is_abandoned_only_if_its_process_is_gone(
    tmp_path: Path, owner: dict[str, object] | str, is_left: bool
) -> None:
    folder = make_scratch(tmp_path).path.rename(tmp_path / "left-1")
    marker = folder / SCRATCH_FILE
    marker.write_text(json.dumps(json.loads(marker.read_text()) | owner if isinstance(owner, dict) else owner))
    if is_left:
        with pytest.raises(RefusedError, match="left alone"):
            remove_tree(folder, LEFT)
    else:
        remove_tree(folder, LEFT)
    assert folder.exists() == is_left


@pytest.mark.parametrize(("age_s", "is_left"), [(7200.0, False), (60.0, True), (-1e6, True)])
def test_of_another_host_what_is_old_is_abandoned_but_nothing_of_the_future(
    tmp_path: Path, age_s: float, is_left: bool
) -> None:
    folder = make_scratch(tmp_path).path.rename(tmp_path / "left-1")
    marker = folder / SCRATCH_FILE
    marker.write_text(json.dumps({"host": "another", "pid": os.getpid()}))
    at = marker.stat().st_mtime - age_s
    os.utime(marker, (at, at))
    if is_left:
        with pytest.raises(RefusedError, match="may use it"):
            remove_tree(folder, LEFT)
    else:
        remove_tree(folder, LEFT)
    assert folder.exists() == is_left


def test_age_alone_removes_nothing(tmp_path: Path) -> None:
    stranger = make_stranger(tmp_path / "left-2")
    os.utime(stranger, (0, 0))
    with pytest.raises(RefusedError, match=re.escape(SCRATCH_FILE)):
        remove_tree(stranger, LEFT)
    assert (stranger / "thesis.txt").exists()


def test_a_scratch_folder_is_private_and_goes_whatever_happens(tmp_path: Path) -> None:
    places = []

    def fail() -> None:
        with scratch_folder("a-", tmp_path) as folder:
            places.append(folder)
            assert folder.stat().st_mode & 0o777 == 0o700
            make_tree(folder / "x")
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        fail()
    assert list(tmp_path.iterdir()) == []
    assert re.fullmatch("a-[0-9a-f]{16}", places[0].name)


def test_a_signal_does_not_keep_a_scratch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink, signals = os.unlink, [KeyboardInterrupt()]

    def interrupted(name: str, **options: int) -> None:
        if signals:
            raise signals.pop()
        unlink(name, **options)

    monkeypatch.setattr(os, "unlink", interrupted)
    with pytest.raises(KeyboardInterrupt), scratch_folder(parent=tmp_path) as folder:
        (folder / "a").write_text("a")
    assert list(tmp_path.iterdir()) == []


def test_what_is_removed_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "stepscope")
    remove_tree(make_tree(tmp_path / "abcd"), STAMPED)
    (tmp_path / "file").touch()
    remove_file(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert remove_empty(tmp_path / "empty")
    assert [record.getMessage() for record in caplog.records] == [
        f"stepscope: removed {tmp_path / 'abcd'}",
        f"stepscope: removed {tmp_path / 'file'}",
        f"stepscope: removed the empty folder {tmp_path / 'empty'}",
    ]


def test_a_move_takes_the_place_of_nothing(tmp_path: Path) -> None:
    make_tree(tmp_path / "abcd")
    (tmp_path / "there").mkdir()
    for target in ("there", "link"):
        if target == "link":
            (tmp_path / "link").symlink_to(tmp_path / "nowhere")
        with pytest.raises(FileExistsError):
            move(tmp_path / "abcd", tmp_path / target)
    assert not remove_empty(tmp_path / "abcd")
    assert (tmp_path / "abcd/mark").exists()


@pytest.mark.parametrize("is_scratch", [False, True])
def test_a_removal_that_was_interrupted_is_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_scratch: bool
) -> None:
    """The mark goes last: without it nothing would say that the rest is ours."""
    scratch = make_scratch(tmp_path, "left-")
    tree = scratch.path.rename(tmp_path / ("left-1" if is_scratch else "abcd"))
    (tree / "inner").mkdir()
    (tree / "inner/file").touch()
    (tree / "mark").touch()
    proof: Made | Marked = scratch.made if is_scratch else STAMPED
    remove = os.unlink

    def refuse(name: str, *, dir_fd: int | None = None) -> None:
        if name == "file":
            raise PermissionError(13, "Permission denied", name)
        remove(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(PermissionError):
        remove_tree(tree, proof)
    monkeypatch.undo()
    monkeypatch.setattr(removal, "_is_running", lambda pid: False)
    remove_tree(tree, LEFT if is_scratch else STAMPED)
    assert not tree.exists()
