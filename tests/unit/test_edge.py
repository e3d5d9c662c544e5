"""The edge that keeps what fails in the collector from reaching the training."""

from __future__ import annotations

import logging

import pytest

from collector.edge import Edge, log_failure


def test_what_raises_is_told_and_goes_no_further() -> None:
    told: list[Exception] = []
    error = RuntimeError("refused")
    with Edge(told.append):
        raise error
    assert told == [error]


def test_nothing_is_told_of_what_succeeds() -> None:
    told: list[Exception] = []
    with Edge(told.append):
        pass
    assert told == []


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_the_process_passes(kind: type[BaseException]) -> None:
    told: list[Exception] = []
    with pytest.raises(kind), Edge(told.append):
        raise kind
    assert told == []


def test_a_failure_that_is_only_logged_names_what_does_not_happen_and_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), log_failure("%s is left out", "a part", level=logging.DEBUG):
        raise ValueError("broken")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", "stepscope: a part is left out: ValueError('broken')")
    ]
