"""Pages, report and redacted report of a run that only infers."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
import torch

import collector
from profiler_server.analysis.steps.requests import summarize_requests
from profiler_server.report.brief import write_brief
from profiler_server.store.redaction import redact
from tests.support import shapes
from tests.support.asking import Asker
from tests.support.recording import Recorded, record

WORDS = re.compile(r"\b(steps?|training|trained|updates?|backward|epochs?)\b", re.IGNORECASE)
PAGES = ("", "steps", "operators", "device", "data", "memory", "timeline")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    def loop() -> None:
        model = shapes.Net()
        for _ in range(80):
            with collector.record("request"), torch.inference_mode():
                model(torch.randn(4, 16))

    return record(tmp_path_factory.mktemp("runs") / "run", loop, window=(10, 3))


@pytest.mark.parametrize("page", PAGES)
def test_no_word_of_training_is_on_a_page(recorded: Recorded, page: str) -> None:
    text = Asker(Path(recorded.run.path).parent).ask(f"/runs/run/{page}").text
    shown = re.sub(r"<(script|style|svg|kbd)\b.*?</\1>", "", text, flags=re.DOTALL)
    words = [html.unescape(line.strip()) for line in re.sub(r"<[^>]+>", "\n", shown).split("\n")]
    assert [line for line in words if WORDS.search(line)] == []


def test_the_brief_report_states_requests_in_words_of_inference(recorded: Recorded) -> None:
    lines = write_brief(recorded.run)
    assert any(line.startswith("80 requests: p50 ") and line.endswith("1 call each.") for line in lines)
    assert not WORDS.search(" ".join(lines))


def test_a_redacted_run_keeps_its_requests(recorded: Recorded) -> None:
    found = summarize_requests(redact(recorded.run).rank())
    assert found is not None
    assert (found.count, found.calls_max) == (80, 1)
