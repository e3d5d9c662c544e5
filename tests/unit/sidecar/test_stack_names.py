"""What a stack says: frames of the user's and of libraries, the stage that it is in, and never too much."""

from __future__ import annotations

from pathlib import Path

import pytest

import collector
from collector.frames.reading import Code
from collector.sidecar import stack_sampling
from collector.sidecar.stack_sampling import NOT_THEIRS, OTHER, Frame, StackBook, describe_stack

_OURS = str(Path(collector.__file__).parent)
_TORCH = "/usr/lib/python3/dist-packages/torch/utils/data/_utils/fetch.py"
MAIN = Frame("main", "/home/me/train.py", 12)
READ = Frame("Photos.__getitem__", "/home/me/data.py", 31)


def _fetch(tmp_path: Path, line: int) -> Frame:
    path = tmp_path / "torch/utils/data/_utils/fetch.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("data = [self.dataset[i] for i in index]\nreturn self.collate_fn(data)\n")
    return Frame("_MapDatasetFetcher.fetch", str(path), line)


class Known:
    """Stands in for a reader: every address is a function of a script."""

    def describe(self, address: int) -> Code | None:
        return Code(f"f{address}", "/home/me/train.py", address, (0,), (address,)) if address else None


class Ours:
    def describe(self, address: int) -> Code | None:
        return Code("timed", f"{_OURS}/workers/tally.py", 1, (0,), (1,))


def test_frames_of_ours_and_of_the_import_system_are_left_out() -> None:
    frames = [Frame("run", "<frozen runpy>", 1), Frame("script", f"{_OURS}/launch/script.py", 9), MAIN]
    assert describe_stack(frames).text == "main (/home/me/train.py:12)"


def test_a_stage_begins_where_the_fetcher_calls(tmp_path: Path) -> None:
    reading = describe_stack([MAIN, _fetch(tmp_path, 1), READ])
    assert (reading.stage, reading.entry) == ("fetch", 2)
    collating = describe_stack([MAIN, _fetch(tmp_path, 2), Frame("gather", "/home/me/data.py", 40)])
    assert (collating.stage, collating.entry) == ("collate", 2)


def test_where_samples_are_timed_reading_and_transforms_are_told_apart(tmp_path: Path) -> None:
    timed = [MAIN, _fetch(tmp_path, 1), Frame("_TimedItems.__getitem__", f"{_OURS}/workers/fetching.py", 9), READ]
    assert describe_stack(timed)[1:] == ("read", 2)
    transform = [*timed, Frame("timed", f"{_OURS}/workers/tally.py", 9), Frame("Resize.__call__", "/lib/tv.py", 3)]
    found = describe_stack(transform)
    assert found[1:] == ("transform", 3)
    assert found.text.splitlines()[found.entry] == "Resize.__call__ (/lib/tv.py:3)"


def test_a_very_deep_stack_keeps_its_ends() -> None:
    lines = describe_stack([Frame(f"f{depth}", "/home/me/train.py", 1) for depth in range(500)]).text.splitlines()
    assert len(lines) < 70
    assert (lines[0], lines[-1]) == ("f0 (/home/me/train.py:1)", "f499 (/home/me/train.py:1)")


def test_hostile_names_stay_on_one_line_and_are_cut() -> None:
    class Hostile:
        def describe(self, address: int) -> Code | None:
            return Code("a\nb\x1b[31m" + "x" * 100_000, "/tmp/\u2028/" + "y" * 100_000, 1, (), ())

    book = StackBook()
    text = book[book.number(Hostile(), [(1, 0)])].text  # type: ignore[arg-type]
    assert len(text) < 600
    assert text.isprintable()


def test_a_stack_in_a_clock_of_ours_is_none_of_theirs() -> None:
    assert StackBook().number(Ours(), [(1, 0)]) == NOT_THEIRS  # type: ignore[arg-type]


def test_the_same_stack_has_the_same_number_and_too_many_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_sampling, "MOST_STACKS", 3)
    book, reader = StackBook(), Known()
    numbers = [book.number(reader, [(leaf, 0), (9, 0), (0, 0)]) for leaf in (1, 2, 1, 3, 4, 5)]  # type: ignore[arg-type]
    assert numbers == [1, 2, 1, 3, 0, 0]
    assert book[0].text == OTHER
    assert book[1].text == "f9 (/home/me/train.py:9)\nf1 (/home/me/train.py:1)"
