"""Twenty questions that an assistant's user asks about kept runs with known figures, asked by the client of `mcp`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import TextContent, Tool

from collector.traces.importing import import_trace
from profiler_server.assistant.fitting import LIMIT_BYTES
from tests.support.cases import PLANTED, build_case_run
from tests.support.jobs import JobPlan, write_job
from tests.support.live import edit_rank
from tests.support.runs import HEALTHY_STEP_MS, RunPlan, build_run

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Question:
    """What is asked, the tool and its arguments, and the texts in which the known answer stands."""

    text: str
    tool: str
    ask: dict[str, Any] = field(default_factory=dict)
    answer: tuple[str, ...] = ()


# The figures are those of the plans: a step of 64 ms, of which 20 are forward and 36 backward, if nothing is planted.
QUESTIONS = (
    Question("Which runs are there?", "list_runs", {}, ('"total":9', '"run":"few_workers"', '"run":"team/killed"')),
    Question("Which of them wait for data?", "list_runs", {"words": "few"}, ('"total":1', '"data_wait_frac":0.6015')),
    Question(
        "What holds the training up?",
        "overview",
        {"run": "few_workers"},
        ("input-bound", "96.0 ms of 160 ms (60.2 %)", '"kind":"input","stage":"read"'),
    ),
    Question(
        "What should I change first, and what would it gain?",
        "overview",
        {"run": "few_workers"},
        ('"change":"num_workers 2 → 5"', "Predicted step: 74.7 ms (63.6 ms to 86.2 ms) instead of 160 ms"),
    ),
    Question(
        "How do I write that change?",
        "overview",
        {"run": "few_workers", "rule": "too_few_workers"},
        ('"num_workers":5', "num_workers=5,  # was 2", "on 4 usable cores"),
    ),
    Question(
        "How many steps does the mean cover, and why not all?",
        "overview",
        {"run": "few_workers"},
        ('"first":1,"last":100,"recorded":100,"in_the_mean":97', "3 steps left out: detailed windows"),
    ),
    Question(
        "Why is there no prediction?",
        "overview",
        {"run": "loop", "rule": "optimizer_loop"},
        ("No step time is predicted", "How much it saves is not known beforehand", "fused=True"),
    ),
    Question(
        "Why is nothing suggested?",
        "overview",
        {"run": "trace"},
        ("19 more steady steps (20 are needed, the trace has 1)", "give torch.profiler.schedule a larger `active`"),
    ),
    Question(
        "How long is a step, usually and at worst?",
        "phases",
        {"run": "saving"},
        ('"p50":64000000', '"max":365280000', '"mean":82556701'),
    ),
    Question(
        "Where does a step go?",
        "phases",
        {"run": "loop"},
        ('{"name":"optimizer","mean_ns":40000000,"share_frac":0.4082}', '"name":"backward","mean_ns":36000000'),
    ),
    Question(
        "Which steps are slow, and why?",
        "phases",
        {"run": "saving"},
        ('"total":6', '"step":16', "checkpoint (save checkpoint) 300 ms", '"total_ns":1800000000'),
    ),
    Question(
        "Which operator takes the most time, and over which steps is that?",
        "operators",
        {"run": "few_workers"},
        ('"entries":[{"name":"aten::convolution_backward"', '"self_ns":54000000', "steps 10-12"),
    ),
    Question(
        "Which kernel runs longest, and how busy is the GPU?",
        "operators",
        {"run": "trace"},
        ('"name":"gemm_sm90","count":2,"total_ns":300000', '"utilization_frac":0.6', '"sorted_by":"device_self_ns"'),
    ),
    Question(
        "Why are there no operators?",
        "operators",
        {"run": "team/killed"},
        ('"operators":{"shown":0,"total":0}', "no operators table"),
    ),
    Question(
        "Is the queue of batches empty, and which stage is it?",
        "data_pipeline",
        {"run": "few_workers"},
        ('"num_workers":2', '"empty_frac":0.75', '{"name":"read","replicas":2,"count":100,"mean_ns":300000000'),
    ),
    Question(
        "Which rank is slow, by how much, and where?",
        "ranks",
        {"run": "job"},
        ('"culprits":[2]', "Rank 2 holds 3 others up 19.2 ms a step", "Its forward takes 39.2 ms against 20.0 ms"),
    ),
    Question(
        "What would mending that rank gain?",
        "overview",
        {"run": "job"},
        ("a rank 2 as fast as the others", "If rank 2 were as fast as the others: 66.1 ms", "instead of 85.2 ms"),
    ),
    Question(
        "Did my change make it slower, and is that more than noise?",
        "compare",
        {"a": "before", "b": "after"},
        ("B is slower by 6.00 ms per step (9.4 %), of it 6.00 ms forward", '"change_ns":6000000', '"meaning":"slower"'),
    ),
    Question(
        "How did the job end?", "overview", {"run": "killed"}, ('"state":"crashed"', "was killed", "after 40 steps")
    ),
    Question(
        "How many steps lie in detailed windows, and how long were they on average?",
        "sql",
        {
            "run": "before",
            "query": "select count(*) n, avg(forward_ns) forward_ns from steps where step in (10, 11, 12)",
        },
        ('"columns":["n","forward_ns"]', '"rows":{"shown":1,"total":1,"entries":[[3,'),
    ),
)


def build_runs(base: Path) -> None:
    for name, case in (("few_workers", "too_few_workers"), ("saving", "checkpoint_stall"), ("loop", "optimizer_loop")):
        build_case_run(base / name, PLANTED[case])
    write_job(base / "job", JobPlan(ranks=4, steps=60, slow=(2,), slow_frac=0.3, noise_frac=0.002))
    build_run(base / "before", RunPlan())
    build_run(base / "after", RunPlan(phases_ms={**HEALTHY_STEP_MS, "forward": 26.0}))
    (base / "team").mkdir()
    build_run(base / "team/killed", RunPlan(state="crashed", operators=False))
    import_trace(ROOT / "tests/golden/traces/two_streams.json", base / "trace")
    build_run(base / "damaged", RunPlan(steps=5))
    edit_rank(base / "damaged", rank=0, host="x" * 3000)


@dataclass(frozen=True)
class Told:
    """What the client was answered: the server's tools, its instructions, and for each question the text and whether it
    is an error.
    """

    tools: tuple[Tool, ...]
    instructions: str
    answers: tuple[tuple[str, bool], ...]


async def ask_all(base: Path, questions: list[tuple[str, dict[str, Any]]]) -> Told:
    """Ask over stdin and stdout of a server in a process of its own."""
    words = ["-m", "profiler_server", "mcp", "--summary-base-dir", str(base)]
    server = StdioServerParameters(command=sys.executable, args=words, env={"PYTHONPATH": str(ROOT)})
    async with stdio_client(server) as (reads, writes), ClientSession(reads, writes) as session:
        started = await session.initialize()
        tools = (await session.list_tools()).tools
        answers = []
        for tool, given in questions:
            found = await session.call_tool(tool, given)
            (content,) = found.content
            assert isinstance(content, TextContent)
            assert found.structured_content is None
            answers.append((content.text, bool(found.is_error)))
    return Told(tuple(tools), started.instructions or "", tuple(answers))


WRONG: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("overview", {"run": "nothing"}, "There is no run 'nothing'"),
    ("overview", {"run": "../few_workers"}, "is not the id of a run"),
    ("overview", {"run": "/etc"}, "is not the id of a run"),
    ("phases", {"run": "few_workers", "rank": 7}, "has no rank 7; it has: 0"),
    ("overview", {"run": "few_workers", "rule": "magic"}, "there are: too_few_workers"),
    ("sql", {"run": "few_workers", "query": "drop table steps"}, "read-only"),
    ("sql", {"run": "few_workers", "query": "select * from read_text('/etc/passwd')"}, "disabled"),
    ("sql", {"run": "few_workers", "query": "select * from nothing"}, "This run has the tables: "),
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    base = tmp_path_factory.mktemp("kept-runs")
    build_runs(base)
    before = {path: path.stat().st_mtime_ns for path in base.rglob("*") if path.is_file()}
    asked = [(question.tool, question.ask) for question in QUESTIONS] + [(tool, given) for tool, given, _ in WRONG]
    yield anyio.run(ask_all, base, asked)
    assert {path: path.stat().st_mtime_ns for path in base.rglob("*") if path.is_file()} == before


def test_twenty_questions_are_asked() -> None:
    assert len(QUESTIONS) == 20


@pytest.mark.parametrize("number", range(len(QUESTIONS)), ids=lambda number: QUESTIONS[number].text)
def test_the_answer_holds_what_is_known(told: Told, number: int) -> None:
    text, is_error = told.answers[number]
    assert not is_error
    assert len(text.encode()) <= LIMIT_BYTES
    assert [word for word in QUESTIONS[number].answer if word not in text] == [], text


@pytest.mark.parametrize("number", range(len(WRONG)), ids=lambda number: WRONG[number][2])
def test_a_question_that_cannot_be_answered_gets_a_line_that_says_why(told: Told, number: int) -> None:
    text, is_error = told.answers[len(QUESTIONS) + number]
    assert is_error
    assert WRONG[number][2] in text
    assert "Traceback" not in text
    assert len(text.splitlines()) == 1


def test_there_are_at_most_eight_tools_and_all_only_read(told: Told) -> None:
    assert 1 <= len(told.tools) <= 8
    for tool in told.tools:
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        assert tool.description
    assert "_ns is nanoseconds" in told.instructions
