"""The ledger of a base directory: what it keeps, what it makes of it, and what it does with a file that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_server.store.ledger import MOST_ENTRIES, NAME, Ledger, LedgerEntry, TrackRecord


def entry(run: str, predicted: float, rule: str = "no_workers", measured: float = 100.0) -> LedgerEntry:
    return LedgerEntry(run, "first", rule, predicted, predicted - 10.0, predicted + 10.0, measured)


def test_each_rule_has_its_own_record(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for made in (entry("a", 100.0), entry("b", 114.0), entry("c", 116.0), entry("d", 50.0, "slow_read")):
        ledger.note(made)
    assert ledger.summarize() == {"no_workers": TrackRecord(3, 2, 1), "slow_read": TrackRecord(1, 0, 0)}


def test_what_was_noted_outlives_the_server_and_a_run_is_noted_once(tmp_path: Path) -> None:
    Ledger(tmp_path).note(entry("a", 150.0))
    Ledger(tmp_path).note(entry("a", 100.0))
    assert Ledger(tmp_path).summarize() == {"no_workers": TrackRecord(1, 1, 1)}


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b'[{"run": "a"}]', b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_ledger_counts_as_empty(tmp_path: Path, text: bytes) -> None:
    (tmp_path / NAME).write_bytes(text)
    ledger = Ledger(tmp_path)
    assert ledger.summarize() == {}
    ledger.note(entry("a", 100.0))
    assert Ledger(tmp_path).summarize() == {"no_workers": TrackRecord(1, 1, 1)}


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_memory(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "not there")
    ledger.note(entry("a", 100.0))
    assert ledger.summarize() == {"no_workers": TrackRecord(1, 1, 1)}


def test_the_oldest_entries_go_first(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger._entries = {str(number): entry(str(number), 100.0) for number in range(MOST_ENTRIES)}
    ledger.note(entry("new", 100.0))
    assert len(ledger._entries) == MOST_ENTRIES
    assert "0" not in ledger._entries
    assert "new" in ledger._entries


def test_impossible_times_are_not_noted(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.note(entry("a", 0.0))
    ledger.note(entry("b", 100.0, measured=0.0))
    ledger.note(entry("c", float("nan")))
    assert ledger.summarize() == {}
