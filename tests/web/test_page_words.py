"""What pages say of a part of a job's ranks, of runs that were cut off or imported, and of the user's own pipeline."""

from __future__ import annotations

import html
import queue
import re
import threading
import time
from pathlib import Path

import pytest

import collector
from collector.format.run import open_run
from collector.marks.watching import WatchedQueue
from collector.traces.importing import import_trace
from profiler_server.web.report_file import render_report
from tests.support.asking import Asker, read_words
from tests.support.cases import PLANTED, build_case_run
from tests.support.live import edit_rank
from tests.support.recording import record as record_loop
from tests.support.runs import RunPlan, build_run
from tests.support.traces import kernel, operator, step, training_steps, write_trace


def _import_part(tmp_path: Path, *ranks: int) -> None:
    told = [(rank, {"distributedInfo": {"rank": rank, "world_size": 128}}) for rank in ranks]
    files = [write_trace(tmp_path / f"rank{rank}.json", training_steps(), head) for rank, head in told]
    import_trace(files, tmp_path / "base/part")


def test_a_part_of_a_jobs_ranks_is_told_as_such(tmp_path: Path) -> None:
    _import_part(tmp_path, 3, 7)
    asker = Asker(tmp_path / "base")
    overall = read_words(asker.ask("/runs/part/").text)
    assert overall.count("2 of 128 ranks") == 2  # among the facts and in the footer
    assert "126 of 128 ranks were not imported" in read_words(asker.ask("/runs/part/ranks").text)
    assert " 2 of 128 " in read_words(asker.ask("/").text)


def test_a_single_rank_of_many_is_not_called_a_folder_that_it_wrote(tmp_path: Path) -> None:
    _import_part(tmp_path, 3)
    words = read_words(Asker(tmp_path / "base").ask("/runs/part/ranks").text)
    assert "The job had 128 ranks, and the trace of rank 3 alone was imported." in words
    assert "output_path" not in words


def test_a_cut_off_run_that_is_recovered_is_told_as_such(tmp_path: Path) -> None:
    run = build_run(tmp_path / "cut", RunPlan(steps=8, state="crashed"))
    asker = Asker(tmp_path)
    for page in ("/", "/runs/cut/"):
        assert "Crashed, recovered" in read_words(asker.ask(page).text), page
    assert "crashed, recovered · 1 rank ·" in read_words(render_report(open_run(run), redact=False))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Asker:
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
def test_the_data_page_names_the_limit(own: Asker, query: str) -> None:
    answer = own.ask(f"/runs/own/data{query}")
    assert answer.status_code == 200
    assert "Limited by decode &lt;b&gt;" in answer.text
    assert "decode <b>" not in answer.text
    assert "&lt;frames&gt;" in answer.text
    assert "DataLoader" not in answer.text.partition("Your own stages")[2]


def test_the_verdict_without_steps_is_that_of_the_pipeline_on_every_face(own: Asker) -> None:
    bound = own.ask("/api/v1/runs/own/report").json()["bound_by"]
    assert (bound["kind"], bound["stage"]) == ("pipeline", "decode <b>")
    assert bound["confidence"] == "sure: measured over 20 items"
    assert "Limited by decode &lt;b&gt;: decode &lt;b&gt; works" in own.ask("/runs/own/").text


FOR_RECORDED = ("window=(10, 3)", "FP_POINT", "analyse()", 'window="auto"')


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    base = tmp_path_factory.mktemp("imported")
    traces = {
        "usual": training_steps(),
        "one-step": [operator("aten::mm", 10, 50)],
        "device-only": [step(1, 0, 100), kernel("gemm", 10, 20, 1)],
    }
    for name, events in traces.items():
        import_trace(write_trace(base / f"{name}.json", events), base / name)
    job = base / "job-traces"
    job.mkdir()
    for rank in range(2):
        write_trace(job / f"rank{rank}.json", training_steps(), {"distributedInfo": {"rank": rank, "world_size": 2}})
    import_trace(job, base / "job")
    return Asker(base)


@pytest.mark.parametrize(
    "slug",
    ["", "steps", "operators", "operators?group=roofline", "device", "memory", "ranks", "timeline"],
)
@pytest.mark.parametrize("run", ["usual", "one-step", "device-only", "job"])
def test_no_page_tells_to_set_what_only_a_recorded_run_has(asker: Asker, run: str, slug: str) -> None:
    text = html.unescape(asker.ask(f"/runs/{run}/{slug}").text)
    assert [words for words in FOR_RECORDED if words in text] == []


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("usual/", "call prof.step() after every step"),
        ("device-only/operators", "ProfilerActivity.CPU"),
        ("one-step/operators?group=kernels", "ProfilerActivity.CUDA"),
        ("job/ranks", "not through torch.distributed"),
        ("usual/ranks", "stepscope import a-folder-of-traces"),
        ("usual/memory", "profile_memory=True"),
        ("one-step/operators?group=roofline", "record_shapes=True"),
    ],
)
def test_what_a_trace_lacks_is_said_with_the_option_of_its_profiler(asker: Asker, address: str, words: str) -> None:
    text = html.unescape(re.sub(r"<[^>]+>", "", asker.ask(f"/runs/{address}").text))
    assert words in text


PAGES = ("", "data", "data?tab=processing")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that no test changes."""
    return build_case_run(tmp_path_factory.mktemp("watched") / "run", PLANTED["watched_input"]).path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return build_case_run(tmp_path / "run", PLANTED["watched_input"]).path


def show(run: Path, page: str) -> str:
    """Return the text of a page without the code of the suggestion."""
    answer = Asker(run.parent).ask(f"/runs/run/{page}")
    assert answer.status_code == 200
    text = re.sub(r"<pre.*?</pre>|<(script|style)[^>]*>.*?</\1>", "", answer.text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))


@pytest.mark.parametrize("page", PAGES)
def test_every_page_says_that_the_training_thread_reads_its_own_input(watched: Path, page: str) -> None:
    text = show(watched, page)
    assert "The recorded thread reads its own input" in text
    assert "nothing reads ahead" in text
    assert "data_pipeline=True" not in text
    assert "There are no worker processes" not in text
    assert "num_workers=0" not in text


def test_the_graph_has_no_stages_of_a_loader_that_there_is_not(watched: Path) -> None:
    text = show(watched, "data?tab=processing")
    assert "not measured" not in text
    assert "waits for each item of “" in text
    assert "Watched input" in text
    assert "The arguments that it was made with" not in text


def test_the_suggestion_leads_to_the_page_that_shows_it(watched: Path) -> None:
    page = Asker(watched.parent).ask("/runs/run/").text
    link = re.search(r'href="([^"]*tab=processing[^"]*)"[^>]*>\s*Work and wait of each stage', page)
    assert link
    assert "The recorded thread reads its own input" in Asker(watched.parent).ask(html.unescape(link[1])).text


@pytest.mark.parametrize(("ahead", "said"), [(True, "make the items of"), (None, "is not known")])
def test_what_is_not_known_of_the_input_is_not_claimed(run: Path, ahead: bool | None, said: str) -> None:
    loaders = open_run(run).rank().manifest.loaders
    edit_rank(run, loaders=tuple(type(entry)(**{**vars(entry), "reads_ahead": ahead}) for entry in loaders))
    for page in PAGES:
        text = show(run, page)
        assert said in text, page
        assert "nothing reads ahead" not in text
