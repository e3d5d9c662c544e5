"""What the commands of `stepscope` say, and the names that they choose."""

from __future__ import annotations

import csv
import io
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.main import get_command

from collector.format.schema import layout
from collector.format.schema.errors import OutputError
from collector.format.schema.tables import TABLES
from collector.traces.importing import import_trace
from profiler_server import cli
from profiler_server.commands.import_traces import choose_name
from profiler_server.entry import run_stepscope
from profiler_server.store.sql import time_limit
from tests.support.runs import RunPlan, build_run
from tests.support.traces import training_steps, write_trace
from tests.web.test_command_line import run

Ask = Callable[..., str]


@pytest.fixture
def ask() -> Ask:
    """Run the command line in this process; return what it printed, stderr last."""

    def run_and_join(*arguments: str | Path) -> str:
        done = run(*arguments)
        return done.stdout + done.stderr

    return run_and_join


def _write_ranks(folder: Path, *ranks: int, world_size: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for rank in ranks:
        told = {"distributedInfo": {"rank": rank, "world_size": world_size}}
        write_trace(folder / f"rank{rank}.json", training_steps(), told)
    return folder


def test_the_help_shows_flags_without_a_type(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    overview = ask("--help")
    monkeypatch.setattr(cli.app, "registered_commands", [])
    cli.register_commands()
    commands: Any = get_command(cli.app)
    assert {"sql", "import", "report"} <= set(commands.commands)
    for text in (overview, *(ask(name, "--help") for name in commands.commands if name not in cli.SHORT)):
        assert "Example: stepscope" in text
        assert not re.search(r"<?bool(ean)?>?\b", text, re.IGNORECASE), text


def test_the_help_of_serve_is_its_own(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["stepscope", "serve", "--help"])
    with pytest.raises(SystemExit) as ended:
        run_stepscope()
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert "stepscope serve [DIR]" in shown
    assert "Commands" not in shown


def test_a_part_of_a_jobs_ranks_is_told_everywhere(ask: Ask, tmp_path: Path) -> None:
    traces = _write_ranks(tmp_path / "job", 3, 7, world_size=128)
    assert ask("import", traces, "--summary-base-dir", tmp_path / "runs").startswith("Imported 2 of 128 ranks as ")
    first, *_, rank3, rank7 = (
        line for line in ask("report", tmp_path / "runs/job").splitlines() if re.match(r"job|Rank \d", line)
    )
    assert first.startswith("job  (imported, kineto format, 2 of 128 ranks, ")
    assert (rank3, rank7) == ("Rank 3: 3 steps", "Rank 7: 3 steps")


def test_one_rank_and_one_step_are_singular(ask: Ask, tmp_path: Path) -> None:
    write_trace(tmp_path / "lone.json", training_steps(1))
    assert ask("import", tmp_path / "lone.json", "--summary-base-dir", tmp_path).startswith("Imported 1 rank as ")
    assert "Rank 0: 1 step\n" in ask("report", tmp_path / "lone")


def test_a_folder_is_not_made_a_run_of_itself(ask: Ask, tmp_path: Path) -> None:
    job = _write_ranks(tmp_path / "job", 0, 1, world_size=2)
    assert ask("import", job, "--summary-base-dir", tmp_path).rstrip().endswith("/job-2")
    assert sorted(path.name for path in job.iterdir()) == ["rank0.json", "rank1.json"]
    assert layout.run_file(tmp_path / "job-2").is_file()


def test_the_name_of_a_run_is_that_of_the_file_or_folder(tmp_path: Path) -> None:
    assert choose_name(tmp_path, [tmp_path / "a b.pt.trace.json.gz"], None) == "a-b"
    assert choose_name(tmp_path, [tmp_path / "elsewhere/job"], None) == "job"
    assert choose_name(tmp_path, [tmp_path / "elsewhere/job"], "mine") == "mine"


def test_the_name_of_a_run_that_is_there_is_refused_with_the_option_to_use(ask: Ask, tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "taken.json", training_steps())
    import_trace(trace, tmp_path / "taken")
    for name in (None, "taken"):
        with pytest.raises(OutputError, match=r"holds a run already; choose another name with --name"):
            choose_name(tmp_path, [trace], name)


def test_recover_says_what_became_of_a_killed_run(ask: Ask, tmp_path: Path) -> None:
    path = build_run(tmp_path / "cut", RunPlan(steps=12, state="crashed"))
    said = ask("recover", path)
    assert "rank 0: its tables were complete already, 12 training steps" in said
    assert "listed as crashed, recovered" in said
    assert "cut  (crashed, recovered, recorded, 1 rank, " in ask("report", path)
    whole = build_run(tmp_path / "whole", RunPlan(steps=12))
    assert "crashed" not in ask("recover", whole)
    layout.table_file(layout.rank_path(path, 0), "queues").write_bytes(b"PAR1 no table PAR1")
    said = ask("recover", path)
    assert "queues.parquet" in said
    assert "rank 0: its other tables can be read, 12 training steps" in said
    assert "it has all that it left" not in said


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select 1; select 2", "one statement of SQL, and this has 2; run them one by one"),
        ("  ", "this is empty"),
        ("drop table steps", "The tables of a run are read-only"),
        ("update steps set step = 1", "The tables of a run are read-only"),
        ("update extensions", "The tables of a run are read-only"),
        ("attach 'other.db'", "The tables of a run are read-only"),
        ("copy steps to 'steps.csv'", "The tables of a run are read-only"),
    ],
)
def test_sql_takes_one_statement(ask: Ask, tmp_path: Path, query: str, words: str) -> None:
    path = build_run(tmp_path / "run", RunPlan(steps=3))
    assert words in ask("sql", path, query)
    assert "3" in ask("sql", path, "select count(*) from steps where kind = 'train';", "--csv")


def test_sql_lists_the_tables_of_the_run_alone(ask: Ask, tmp_path: Path) -> None:
    path = build_run(tmp_path / "run", RunPlan(steps=3))
    listed = ask("sql", path, "show tables", "--csv").splitlines()
    assert "steps" in listed
    assert set(listed) <= {"name", *TABLES}
    assert "printed" not in ask("sql", path, "show tables")


def test_sql_says_where_it_cut_the_rows(ask: Ask, tmp_path: Path) -> None:
    path = build_run(tmp_path / "run", RunPlan(steps=3))
    cut = ask("sql", path, "select * from range(12000)")
    assert "Cut: these are the first 10,000 rows, and there are more; --csv prints all" in cut
    assert "Cut" not in ask("sql", path, "select * from range(10000)")
    assert ask("sql", path, "select * from range(12000)", "--csv").splitlines()[-1] == "11999"
    few = ask("sql", path, "select * from range(3)", "--csv", "--rows", "2")
    assert few.splitlines() == [
        "range",
        "0",
        "1",
        "Cut: these are the first 2 rows, and there are more; --rows N prints more",
    ]
    assert "Cut" not in ask("sql", path, "select * from range(2)", "--csv", "--rows", "2")


@pytest.mark.parametrize("form", [[], ["--csv"]])
def test_sql_ends_a_query_that_takes_too_long(ask: Ask, tmp_path: Path, form: list[str]) -> None:
    path = build_run(tmp_path / "run", RunPlan(steps=3))
    query = "select count(*) from range(1000000) a, range(1000000) b where a.range <> b.range"
    assert "took longer than 0.2 s" in ask("sql", path, query, "--seconds", "0.2", *form)


def test_a_spreadsheet_runs_no_cell_of_the_csv(ask: Ask, tmp_path: Path) -> None:
    path = build_run(tmp_path / "run", RunPlan(steps=3))
    cells = ["=1+1", "+cmd", "-cmd", "@SUM(1)", "\tx", "plain", "-12", "+1.5e3"]
    query = (
        "select unnest([" + ", ".join(f"'{cell}'" for cell in cells) + "]) as cell, -5 as whole, -0.5::double as part"
    )
    rows = list(csv.reader(io.StringIO(ask("sql", path, query, "--csv"))))
    assert [row[0] for row in rows[1:]] == ["'=1+1", "'+cmd", "'-cmd", "'@SUM(1)", "'\tx", "plain", "-12", "+1.5e3"]
    assert {tuple(row[1:]) for row in rows[1:]} == {("-5", "-0.5")}


def test_the_help_of_sql_tells_how_to_leave_out_what_is_no_training(ask: Ask) -> None:
    assert " ".join(ask("sql", "--help").split()).count("where kind = 'train'") == 2


@pytest.mark.parametrize("command", ["export", "report"])
def test_a_file_that_cannot_be_written_is_named_as_it_was_given(ask: Ask, tmp_path: Path, command: str) -> None:
    path = build_run(tmp_path / "run", RunPlan(steps=3))
    option = {"export": "--output", "report": "--html"}[command]
    said = ask(command, path, option, tmp_path / "none/there.json")
    assert f"{tmp_path / 'none/there.json'} cannot be written ({os.strerror(2)}); choose a path" in said
    assert "partial" not in said


class SlowToEnd(threading.Timer):
    """A timer whose thread gets no processor for a while after it was cancelled."""

    def run(self) -> None:
        super().run()
        time.sleep(0.2)


def test_nothing_holds_the_connection_when_a_query_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Timer", SlowToEnd)
    before = threading.enumerate()
    with duckdb.connect(":memory:") as connection, time_limit(connection, 60.0):
        connection.execute("SELECT 1")
    assert [thread for thread in threading.enumerate() if thread not in before] == []
