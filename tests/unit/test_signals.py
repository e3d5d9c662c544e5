"""A signal ends a command, even where Python drops what the signal raises."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from collector.ending import unwind_at_signals

ENDS = {signal.SIGTERM: SystemExit, signal.SIGHUP: SystemExit, signal.SIGINT: KeyboardInterrupt}


def count_slowly() -> Iterator[int]:
    try:
        yield 1
        yield 2
    finally:
        time.sleep(0.3)


def drop_while_ended_by(number: signal.Signals) -> None:
    sender = threading.Timer(0.1, os.kill, (os.getpid(), number))
    with unwind_at_signals():
        numbers = count_slowly()
        next(numbers)
        sender.start()
        del numbers  # sleeps; Python drops what is raised meanwhile
        time.sleep(5)
        pytest.fail("the command went on")


@pytest.mark.parametrize("number", ENDS)
def test_a_signal_in_a_generator_that_nobody_reads_ends_the_command(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in (*ENDS, signal.SIGALRM)], sys.unraisablehook
    with pytest.raises(ENDS[number]) as ended:
        drop_while_ended_by(number)
    assert ended.value.args == (() if number == signal.SIGINT else (128 + number,))
    assert before == ([signal.getsignal(each) for each in (*ENDS, signal.SIGALRM)], sys.unraisablehook)


def test_other_errors_that_python_drops_are_reported_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: reported.append(dropped.exc_type))

    class Closing:
        def __del__(self) -> None:
            raise ValueError

    with unwind_at_signals():
        Closing()
    assert reported == [ValueError]
