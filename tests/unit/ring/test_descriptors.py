"""What a script does with descriptors that it does not know neither reaches a log nor is reached by one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from collector.ring.records import RecordWriter
from collector.ring.words import WordLog, WordReader
from collector.sidecar.process import find_log
from collector.workers.files import ReadCounter
from tests.support.records import open_ring
from tests.support.scripts import run_script


@contextmanager
def take_over(descriptor: int, path: Path) -> Iterator[int]:
    """Close a descriptor as a daemon does and give its number to another file: nothing may write to it in the block."""
    os.close(descriptor)
    path.write_bytes(b"0123456789")
    opened = os.open(path, os.O_RDWR)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
    yield descriptor
    assert os.pread(descriptor, 20, 0) == b"0123456789"
    os.close(descriptor)


def test_a_ring_writes_to_no_file_that_has_the_number_of_its_descriptor_and_goes_on(tmp_path: Path) -> None:
    ring = RecordWriter(tmp_path / "ring", 2, 8)
    ring.append(1, 2)
    with take_over(ring._descriptor, tmp_path / "mine"):
        ring.append(3, 4)
        ring.close()
    assert open_ring(tmp_path / "ring").read().tolist() == [[1, 2], [3, 4]]


def test_a_ring_whose_file_is_gone_too_is_silent(tmp_path: Path) -> None:
    ring = RecordWriter(tmp_path / "ring", 2, 8)
    with take_over(ring._descriptor, tmp_path / "mine"):
        (tmp_path / "ring").unlink()
        ring.append(3, 4)
        ring.close()


def test_a_log_that_is_closed_leaves_a_file_of_the_script_open(tmp_path: Path) -> None:
    for shared in (False, True):
        log = WordLog(tmp_path / f"log{shared}", 64, shared=shared)
        with take_over(log._descriptor, tmp_path / "mine"):
            log.close()


def test_the_counter_of_bytes_leaves_a_file_of_the_script_open(tmp_path: Path) -> None:
    counter = ReadCounter()
    counter.start()
    if counter._descriptor < 0:
        pytest.skip("the kernel does not count")
    with take_over(counter._descriptor, tmp_path / "mine"):
        counter.close()


def test_a_log_whose_descriptor_was_closed_is_given_to_the_next_reader_with_all_that_it_holds(tmp_path: Path) -> None:
    log = WordLog(tmp_path / "log", 64, shared=True)
    if not log.is_shared:
        pytest.skip("no shared memory here")
    words = log.words
    log.write(3 << 56, 5)
    with take_over(log._descriptor, tmp_path / "mine") as mine:
        memory = log.share()
        assert memory not in (None, mine)
        words[log.following() & log.mask] = 4 << 56 | 6  # through the view that hooks hold
        reader = WordReader(find_log(int(memory or 0)))
        assert np.array_equal(reader.read(), [3 << 56 | 5, 4 << 56 | 6])
        log.close()


def test_no_log_becomes_stdin_or_stderr_of_a_script_that_closed_them(tmp_path: Path) -> None:
    printed = run_script(
        tmp_path,
        """
        import os
        from pathlib import Path
        from collector.ring.records import RecordWriter
        from collector.ring.words import WordLog
        os.close(0)
        os.close(2)
        kept = [WordLog(Path("log"), 64, shared=True), WordLog(Path("file"), 64), RecordWriter(Path("ring"), 2, 8)]
        print(*(one._descriptor > 2 for one in kept))
        """,
    )
    assert printed == "True True True\n"
