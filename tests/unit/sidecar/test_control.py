"""control.json of a run that records: from the file to the training thread, and what becomes of a file that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.format.schema.control import MOST_STEPS, WindowRequest, read_control, write_control
from collector.format.schema.layout import control_file, events_path, rank_path
from collector.notes import WORDS_FILE, Notes, write_notes
from collector.options import Options, parse_options
from collector.ring.clock import Clock
from collector.ring.windows import Order, decode_order, send_order
from collector.ring.words import ORDER_SLOT, WordLog
from collector.sidecar.assemblers.control import ControlAssembler


class Recorded:
    """A rank that records: its word log, and the assembler that watches beside it."""

    def __init__(self, path: Path, options: Options | None = None) -> None:
        self.path = path
        self.folder = rank_path(path, 0)
        events_path(self.folder).mkdir(parents=True)
        self.clock = Clock.start()
        self.log = WordLog(events_path(self.folder) / WORDS_FILE, 1 << 10)
        times = (self.clock.epoch_unix_ns, self.clock.perf_ns, self.clock.unix_ns)
        self.notes = Notes(0, 1, None, "here", 0, *times, options=(options or Options()).as_dict())
        write_notes(self.notes, self.folder)
        self.assembler = ControlAssembler(self.folder, self.clock)

    def read_order(self) -> Order | None:
        word = self.log.header[ORDER_SLOT]
        return decode_order(word) if word else None

    def poll(self) -> list[str]:
        self.assembler.poll()
        return [warn.text for warn in self.assembler.describe()["warnings"]]


def test_a_request_reaches_the_training_thread_once(tmp_path: Path) -> None:
    rank = Recorded(tmp_path)
    assert rank.poll() == []
    assert rank.read_order() is None
    write_control(tmp_path, WindowRequest(500, 5))
    assert read_control(tmp_path) == WindowRequest(500, 5)
    assert rank.poll() == []
    assert rank.read_order() == Order(500, 5, "control")
    word = rank.log.header[ORDER_SLOT]
    rank.poll()
    assert rank.log.header[ORDER_SLOT] == word
    write_control(tmp_path, WindowRequest(500, 5))
    rank.poll()
    assert rank.log.header[ORDER_SLOT] != word  # written again, it is a new order
    assert rank.read_order() == Order(500, 5)


@pytest.mark.parametrize(
    "text",
    ["", "{bad", "[]", "{}", '{"window": 5}', '{"window": {"first": 5}}', '{"window": {"first": -1, "count": 3}}',
     '{"window": {"first": 1, "count": 0}}', '{"window": [1, true]}', '{"window": [1, 100000]}', "[" * 60_000, " " * 70_000],
)  # fmt: skip
def test_a_file_that_is_wrong_is_a_warning_until_it_is_mended(tmp_path: Path, text: str) -> None:
    rank = Recorded(tmp_path)
    control_file(tmp_path).write_text(text, encoding="utf-8")
    (warning,) = rank.poll()
    assert str(control_file(tmp_path)) in warning
    assert "The training is not affected" in warning
    assert rank.read_order() is None
    control_file(tmp_path).write_text(json.dumps({"window": [7, 2]}), encoding="utf-8")
    assert rank.poll() == []
    assert rank.read_order() == Order(7, 2)


def test_a_run_without_windows_says_that_it_takes_none(tmp_path: Path) -> None:
    rank = Recorded(tmp_path, parse_options({"window": None}))
    write_control(tmp_path, WindowRequest(5, 5))
    (warning,) = rank.poll()
    assert "the option window is off" in warning
    assert rank.read_order() is None


def test_a_recorder_that_takes_over_does_not_order_again(tmp_path: Path) -> None:
    rank = Recorded(tmp_path)
    write_control(tmp_path, WindowRequest(5, 5))
    rank.poll()
    rank.log.header[ORDER_SLOT] = 0
    successor = ControlAssembler(rank.folder, rank.clock)
    successor.restore(json.loads(json.dumps(rank.assembler.checkpoint())))
    successor.poll()
    assert rank.read_order() is None


def test_orders_fit_into_a_word(tmp_path: Path) -> None:
    log = WordLog(tmp_path / "log", 1 << 10)
    for trigger in ("control", "outlier", "drift"):
        order = Order((1 << 36) - 1, MOST_STEPS, trigger)
        for _ in range(200):
            send_order(tmp_path / "log", order)
            assert log.header[ORDER_SLOT] > 0
        assert decode_order(log.header[ORDER_SLOT]) == order
    with pytest.raises(ValueError, match="1 to 1000"):
        send_order(tmp_path / "log", Order(1, MOST_STEPS + 1))
