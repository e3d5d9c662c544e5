"""`stepscope`: exit codes, one line on stderr, what it prints. Each command is once a process of its own."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collector.format.schema import layout
from collector.format.schema.errors import RunNotFoundError
from profiler_server import cli
from profiler_server.commands import find_runs
from tests.fuzz.manifests import build_killed
from tests.support import forking
from tests.support.histories import Recorded, build_recorded
from tests.support.runs import HEALTHY_STEP_MS, RunPlan, build_run, slow_loader_plan

PROGRAM = [sys.executable, "-m", "profiler_server.cli"]


def start(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return forking.run([*PROGRAM, *map(str, arguments)], cwd=cwd)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command in this process: a process of its own takes two seconds for its imports."""
    words = ["stepscope", *map(str, arguments)]
    code: object = 0
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as errors,
    ):
        patch.setattr(sys, "argv", words)
        patch.setattr(cli.app, "registered_commands", [*cli.app.registered_commands])
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
    assert isinstance(code, int)
    return subprocess.CompletedProcess(words, code, out.getvalue(), errors.getvalue())


def assert_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit code 2, nothing on stdout, one line on stderr that holds the words."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("command-runs")
    build_run(base / "healthy", RunPlan())
    build_run(base / "team/slow", slow_loader_plan("read"))
    build_run(base / "broken", RunPlan(steps=3))
    layout.run_file(base / "broken").write_text("{")
    return base


def test_a_base_dir_is_needed() -> None:
    assert_refused(start(), "--summary-base-dir", "--help")


def test_a_base_dir_that_is_not_there(tmp_path: Path) -> None:
    assert_refused(run("--summary-base-dir", tmp_path / "none"), "none", "does not exist")


def test_a_base_dir_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert_refused(run("--summary-base-dir", tmp_path / "file"), "file is a file", "stepscope import file")


def test_a_port_in_use_names_one_that_is_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("--summary-base-dir", tmp_path, "--port", str(port))
    assert_refused(done, f"port {port}", "is in use", "--port")


def test_a_host_that_is_not_ours(tmp_path: Path) -> None:
    assert_refused(run("--summary-base-dir", tmp_path, "--host", "203.0.113.1"), "cannot listen on 203.0.113.1")


def test_unknown_options_and_commands_are_named() -> None:
    for arguments in (["--wrong"], ["report"], ["frobnicate"]):
        done = run(*arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


@pytest.fixture
def server(base: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = forking.Forked(
        [*PROGRAM, "--summary-base-dir", str(base), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    yield process, process.stdout.readline().split()[-1]
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_serves_at_the_address_it_prints_until_interrupted(server: tuple[subprocess.Popen[str], str]) -> None:
    process, address = server
    assert address.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(address, timeout=300) as answer:
        assert "team/slow" in answer.read().decode()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0
    assert "Traceback" not in errors


@pytest.mark.parametrize("name", ["healthy", "team/slow", "slow"])
def test_report_finds_a_run_by_id_and_by_name(base: Path, name: str) -> None:
    done = run("report", name, "--json", "--summary-base-dir", base)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["run"]["name"] == name.split("/")[-1]


def test_report_takes_a_path_and_the_base_dir_before_the_command(base: Path) -> None:
    by_path = start("report", base / "healthy")
    before = run("--summary-base-dir", base, "report", "healthy")
    assert by_path.returncode == before.returncode == 0
    assert by_path.stdout == before.stdout
    assert "healthy" in by_path.stdout
    assert "\x1b[" not in by_path.stdout


@pytest.mark.parametrize("command", ["report", "recover", "export"])
def test_a_run_that_is_not_there(base: Path, command: str) -> None:
    assert_refused(run(command, "none", "--summary-base-dir", base), "none")


@pytest.mark.parametrize("command", ["report", "export"])
def test_a_run_that_cannot_be_read(base: Path, command: str) -> None:
    assert_refused(run(command, "broken", "--summary-base-dir", base), "run.json", "is damaged", "cannot be made again")


def test_a_report_says_damage_once_and_shows_what_is_left(tmp_path: Path) -> None:
    steps = layout.table_file(layout.rank_path(build_run(tmp_path / "hurt"), 0), "steps")
    steps.write_bytes(steps.read_bytes()[:500])
    done = run("report", "hurt", "--summary-base-dir", tmp_path)
    assert done.returncode == 0
    assert "its steps cannot be read" in done.stdout
    assert "stage read" in done.stdout
    assert done.stdout.count("is damaged") == 1
    assert "cannot be made again; the other tables of the run are not affected" in done.stdout
    for table in ("operators", "kernels", "queues", "stages"):
        layout.table_file(steps.parent, table).unlink(missing_ok=True)
    assert_refused(
        run("report", "hurt", "--summary-base-dir", tmp_path), "steps.parquet is damaged", "cannot be made again"
    )


def test_recover_says_that_damage_of_an_ended_run_stays(tmp_path: Path) -> None:
    path = build_run(tmp_path / "hurt", RunPlan(steps=12))
    folder = layout.rank_path(path, 0)
    steps, before = layout.table_file(folder, "steps"), layout.rank_file(path, 0).read_text()
    steps.write_bytes(steps.read_bytes()[:500])
    done = run("recover", "hurt", "--summary-base-dir", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"rank 0: {steps} is damaged" in done.stdout
    assert "cannot be made again; the other tables of the run are not affected" in done.stdout
    layout.rank_file(path, 0).write_text("{")
    done = run("recover", "hurt", "--summary-base-dir", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "rank.json is damaged" in done.stdout
    assert "it cannot be made again, the tables" in done.stdout
    layout.rank_file(path, 0).write_text(before)
    layout.run_file(path).write_text("{}")
    assert_refused(run("recover", "hurt", "--summary-base-dir", tmp_path), "run.json lacks", "cannot be made again")


def test_recover_makes_the_damaged_manifest_of_a_killed_rank_again(tmp_path: Path) -> None:
    build_killed(tmp_path / "killed")
    layout.rank_file(tmp_path / "killed", 0).write_text("{")
    assert_refused(run("report", "killed", "--summary-base-dir", tmp_path), "is damaged", "stepscope recover /")
    assert "its tables are made of what it left" in run("recover", "killed", "--summary-base-dir", tmp_path).stdout
    assert run("report", "killed", "--summary-base-dir", tmp_path).returncode == 0


def test_recover_by_several_processes_says_what_one_says(tmp_path: Path) -> None:
    for name in ("one", "several"):
        path = build_run(tmp_path / name, RunPlan(steps=12, ranks=3, state="crashed", operators=False))
        steps = layout.table_file(layout.rank_path(path, 1), "steps")
        steps.write_bytes(steps.read_bytes()[:500])
    alone = run("recover", "one", "--summary-base-dir", tmp_path)
    together = start("recover", "several", "--jobs", "2", "--summary-base-dir", tmp_path)
    assert (together.returncode, together.stderr) == (0, "")
    assert together.stdout == alone.stdout.replace("/one/", "/several/")
    assert "rank_1/steps.parquet is damaged" in together.stdout


def test_compare_names_what_changed_and_does_not_judge_a_single_pair(base: Path) -> None:
    done = start("compare", "healthy", "team/slow", "--gate", "--summary-base-dir", base)
    assert done.returncode == 2
    assert done.stdout.startswith("B is slower by 95.6 ms per step")
    assert "Data wait" in done.stdout
    assert "Gate undecided (one pair of runs). Within this pair the median step differs by +" in done.stdout
    back = run("compare", "team/slow", "healthy", "--json", "--summary-base-dir", base)
    assert back.returncode == 0
    assert json.loads(back.stdout)["step"]["is_clear"] is True


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    for number, wait_ms in enumerate((0.4, 0.5, 0.6, 0.4)):
        for name, more in (("old", 0.0), ("new", 8.0)):
            phases = {**HEALTHY_STEP_MS, "data_wait": wait_ms + more}
            build_run(tmp_path / name / f"{name}-{number}", RunPlan(phases_ms=phases, operators=False))
    return tmp_path


def test_the_gate_takes_lists_of_runs_and_folders_of_them(lists: Path) -> None:
    news = sorted((lists / "new").iterdir())
    done = run("compare", *news, "--against", lists / "old", "--gate")
    assert done.returncode == 1, done.stderr
    assert "Gate failed: slower (4 runs against 4). The median step is " in done.stdout
    assert "in the mean step data wait is 8.00 ms longer" in done.stdout
    olds = sorted((lists / "old").iterdir())
    back = run("compare", lists / "old", "--against", *news, "--gate", "--json")
    assert (back.returncode, json.loads(back.stdout)["gate"]["kind"]) == (0, "faster")
    same = run("compare", *olds[:2], "--against", *olds[2:], "--gate")
    assert same.returncode == 2
    assert "2 runs against 2 of the base: at least 3 of each side" in same.stdout
    assert run("compare", lists / "new", "--against", lists / "old", "--gate", "--max-slowdown", "50%").returncode == 0


def test_a_folder_without_runs_is_no_list_of_them(tmp_path: Path) -> None:
    with pytest.raises(RunNotFoundError, match="no run lies in or below"):
        find_runs([str(tmp_path)], None)


def test_the_gate_writes_what_ci_systems_read(lists: Path) -> None:
    junit, markdown = lists / "gate.xml", lists / "gate.md"
    words = (lists / "new", "--against", lists / "old", "--junit", junit, "--markdown", markdown)
    assert run("compare", *words).returncode == 0
    case = ElementTree.parse(junit).getroot().find("testcase/failure")
    assert case is not None
    assert "% slower (+" in case.get("message", "")
    assert "**Step time: failed: slower.**" in markdown.read_text(encoding="utf-8")
    assert "| Data wait | +8.00 ms |" in markdown.read_text(encoding="utf-8")
    assert_refused(run("compare", *words[:3], "--junit", lists / "missing" / "x.xml"), "cannot be written")


def test_a_run_that_cannot_be_read_is_told_to_ci_systems_in_place_of_an_earlier_verdict(lists: Path) -> None:
    junit, markdown = lists / "gate.xml", lists / "gate.md"
    for path in (junit, markdown):
        path.write_text("that of an earlier build")
    layout.table_file(layout.rank_path(lists / "new" / "new-1", 0), "steps").write_bytes(b"PAR1 no more")
    words = (lists / "new", "--against", lists / "old", "--gate", "--junit", junit, "--markdown", markdown)
    assert_refused(run("compare", *words), "steps.parquet is damaged")
    error = ElementTree.parse(junit).getroot().find("testcase/error")
    assert error is not None
    assert "steps.parquet is damaged" in error.get("message", "")
    assert markdown.read_text(encoding="utf-8").startswith("**Step time: undecided.** ")


def test_two_folders_of_runs_are_told_how_to_compare_them(lists: Path) -> None:
    asked = run("compare", lists / "old", lists / "new", "--gate")
    assert_refused(asked, f"stepscope compare {lists / 'new'} --against {lists / 'old'} --gate")


def test_a_limit_asks_for_a_verdict(lists: Path) -> None:
    done = run("compare", lists / "old" / "old-0", lists / "new" / "new-0", "--max-slowdown", "3%")
    assert (done.returncode, "Gate undecided (one pair of runs)." in done.stdout) == (0, True)


@pytest.mark.parametrize("text", ["three", "-1", "nan"])
def test_a_limit_that_is_no_share_is_refused(lists: Path, text: str) -> None:
    assert_refused(run("compare", lists / "new", "--against", lists / "old", "--max-slowdown", text), "3% or 0.03")


def test_a_comparison_asks_for_two_runs(lists: Path) -> None:
    assert_refused(run("compare", lists / "new"), "compare takes 2 to 8 runs")


def test_the_gate_names_the_line_that_made_the_step_slower(tmp_path: Path) -> None:
    for at in range(3):
        build_recorded(tmp_path / f"old/{at}", Recorded(samples=80, line=41, seed=at))
        build_recorded(tmp_path / f"new/{at}", Recorded(1, 9.0, 260, 44, seed=at + 3))
    junit, markdown = tmp_path / "gate.xml", tmp_path / "gate.md"
    words = (tmp_path / "new", "--against", tmp_path / "old", "--junit", junit, "--markdown", markdown)
    text = run("compare", *words).stdout
    pattern = (
        r"The mean step is ([\d.]+) ms longer; of your lines, (normalize\(\) \(train\.py:44\)) is ([\d.]+) ms longer\."
    )
    (found,) = re.findall(pattern, text)
    assert 0.7 < float(found[2]) / float(found[0]) < 1.3
    assert re.search(rf"{re.escape(found[1])} +\+{found[2]}", text), "in the table of what changed, too"
    assert markdown.read_text().count("normalize() (train.py:44)") == 2
    assert junit.read_text().count("normalize() (train.py:44)") == 3
    asked = json.loads(run("compare", *words, "--json").stdout)["gate"]
    assert asked["lines"][0]["b_place"] == "train.py:44"
    pair = json.loads(run("compare", tmp_path / "old/0", tmp_path / "new/0", "--json").stdout)
    assert pair["lines"][0]["part"]["name"] == "normalize()"


def test_sql_asks_the_tables_and_nothing_else(base: Path) -> None:
    done = start(
        "sql", "healthy", "select rank, count(*) as n from steps group by 1", "--csv", "--summary-base-dir", base
    )
    assert done.stdout == "rank,n\n0,40\n"
    assert_refused(
        run("sql", "healthy", "select * from step", "--summary-base-dir", base), "stages, steps, tracks", "step"
    )
    assert_refused(run("sql", "healthy", "selec", "--summary-base-dir", base), "syntax error")
    assert_refused(
        run("sql", "healthy", "select * from read_csv('/etc/passwd')", "--summary-base-dir", base), "disabled"
    )


def test_export_writes_a_trace(base: Path, tmp_path: Path) -> None:
    done = start("export", "healthy", "-o", tmp_path / "t.json", "--summary-base-dir", base)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert_refused(
        run("export", "healthy", "--output", tmp_path / "no/t.json", "--summary-base-dir", base), "no/t.json"
    )
    assert_refused(start("export", "healthy", "--steps", "5-x", "--summary-base-dir", base, cwd=tmp_path), "5-x")


def test_import_of_what_is_no_trace_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("not a trace")
    done = run("import", tmp_path / "a.json", "--summary-base-dir", tmp_path / "runs")
    assert_refused(done, "a.json")
    assert list((tmp_path / "runs").glob("**/*")) == []
    assert_refused(run("import", tmp_path / "a.json", "--name", "../out", "--summary-base-dir", tmp_path), "--name")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_an_import_that_a_signal_ends_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    base, trace = tmp_path / "runs", tmp_path / "a.json.gz"
    event = b'{"ph": "X", "pid": 1, "tid": 1, "name": "a", "ts": 1, "dur": 1},'
    pieces = gzip.compress(event * 20_000)
    trace.write_bytes(gzip.compress(b'{"traceEvents": [') + pieces * 500)  # takes a minute or more to read
    command = [*PROGRAM, "import", str(trace), "--summary-base-dir", str(base)]
    before = signal.signal(number, signal.SIG_DFL)  # below nohup, and in the background, a signal is ignored
    try:
        process = forking.Forked(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(number, before)
    with process:
        while not list(base.glob(".a.*/.staged")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        said = process.communicate(timeout=300)
    assert list(base.iterdir()) == []
    # Python ends by SIGINT itself where Ctrl-C comes while a dataclass is made.
    assert process.returncode in (128 + number, -signal.SIGINT if number == signal.SIGINT else None)
    assert "Traceback" not in said[1]


def test_import_makes_a_run(tmp_path: Path) -> None:
    step = {"ph": "X", "pid": 1, "tid": 1, "cat": "user_annotation"}
    events = [{**step, "name": f"ProfilerStep#{i}", "ts": 1000 * i, "dur": 1000} for i in range(4)]
    (tmp_path / "digits.pt.trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    done = start("import", tmp_path / "digits.pt.trace.json", "--summary-base-dir", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/digits/profiler/run.json").is_file()
    assert "Importing" not in done.stderr  # no progress bar in a pipe


def test_no_torch_is_imported(base: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.argv[1:] = ['report', 'healthy', '--summary-base-dir', sys.argv[1]]\n"
        "from profiler_server.cli import main; main()"
    )
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run([sys.executable, "-c", code, str(base)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_a_demo_that_has_no_place_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert_refused(run("demo", "--summary-base-dir", tmp_path / "file/runs"), "cannot be made")


@pytest.mark.slow
def test_the_demo_records_a_real_run(tmp_path: Path) -> None:
    done = start("demo", "--steps", "12", "--no-serve", "--summary-base-dir", tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(run("report", "demo-1", "--json", "--summary-base-dir", tmp_path).stdout)
    assert report["ranks"][0]["steps"]["last"] == 12


def test_recover_of_a_whole_run_changes_nothing(base: Path) -> None:
    done = run("recover", "healthy", "--summary-base-dir", base)
    assert done.returncode == 0, done.stderr
    assert "rank 0: " in done.stdout
    assert "40 training steps" in done.stdout


def test_without_the_extra_server_one_line_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['typer'] = None; from profiler_server.entry import run_server; sys.exit(run_server())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "stepscope: typer is not installed; install the server with: pip install 'stepscope[server]'\n"
    )


@pytest.mark.parametrize("how", [(), ("--csv",)])
def test_texts_in_place_of_numbers_are_told_in_a_line(tmp_path: Path, how: tuple[str, ...]) -> None:
    """Even those that are no text at all, which DuckDB repeats in its message."""
    file = layout.table_file(layout.rank_path(build_run(tmp_path / "run", RunPlan(steps=1)), 0), "queues")
    rows = pq.read_table(file)
    ends = pa.py_buffer(np.arange(0, 2 * rows.num_rows + 1, 2, dtype=np.int32))
    texts = pa.Array.from_buffers(pa.string(), rows.num_rows, [None, ends, pa.py_buffer(b"\xff\xfe" * rows.num_rows)])
    pq.write_table(rows.set_column(rows.schema.get_field_index("depth"), "depth", texts), file)
    done = run("sql", tmp_path / "run", "select * from queues", *how)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is damaged and cannot be restored: it holds text that is not UTF-8" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
