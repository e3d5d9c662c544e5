"""The pages of a run that has a pipeline of the user's own and no training step."""

from __future__ import annotations

import queue
import threading
import time

import pytest

import collector
from collector.marks.watching import WatchedQueue
from tests.support.asking import Asker
from tests.support.recording import record as record_loop


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    base = tmp_path_factory.mktemp("base")
    record_loop(base / "own", run_pipeline)
    return Asker(base)


def run_pipeline() -> None:
    frames = collector.queue("<frames>", queue.Queue(4))
    thread = threading.Thread(target=decode, args=(frames,))
    thread.start()
    while frames.get() is not None:
        with collector.stage("resize"):
            pass
    thread.join()


def decode(frames: WatchedQueue) -> None:
    for number in range(20):
        with collector.stage("decode <b>"):
            time.sleep(0.005)
        frames.put(number)
    frames.put(None)


@pytest.mark.parametrize("query", ["", "?tab=processing", "?tab=processing&queue=%3Cframes%3E"])
def test_the_data_page_names_the_limit(asker: Asker, query: str) -> None:
    answer = asker.ask(f"/runs/own/data{query}")
    assert answer.status_code == 200
    assert "Limited by decode &lt;b&gt;" in answer.text
    assert "decode <b>" not in answer.text
    assert "&lt;frames&gt;" in answer.text
    assert "DataLoader" not in answer.text.partition("Your own stages")[2]


def test_the_overall_page_and_the_timeline_open(asker: Asker) -> None:
    assert "waits for input" in asker.ask("/runs/own/").text
    assert asker.ask("/runs/own/timeline").status_code == 200


def test_the_report_lists_the_stages(asker: Asker) -> None:
    report = asker.ask("/api/v1/runs/own/report").json()
    stages = {stage["name"]: stage for stage in report["ranks"][0]["stages"]}
    assert stages["decode <b>"]["busy_frac"] > 0.8
    assert stages["resize"]["input_wait_frac"] > 0.5


def test_the_verdict_without_steps_is_that_of_the_pipeline_on_every_face(asker: Asker) -> None:
    bound = asker.ask("/api/v1/runs/own/report").json()["bound_by"]
    assert (bound["kind"], bound["stage"]) == ("pipeline", "decode <b>")
    assert bound["confidence"] == "sure: measured over 20 items"
    assert "Limited by decode &lt;b&gt;: decode &lt;b&gt; works" in asker.ask("/runs/own/").text
