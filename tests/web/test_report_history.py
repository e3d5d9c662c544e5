"""The report says since when a script is slower in the figures of the list of runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from collector.format.run import open_run
from collector.format.schema import layout
from profiler_server.commands.report import find_others
from profiler_server.report import build_report
from profiler_server.report.text import render_history
from tests.support.asking import Asker
from tests.support.runs import HEALTHY_STEP_MS, RunPlan, build_run
from tests.web.test_command_line import run


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Ten runs of a script; from the sixth on forward takes 6 ms longer."""
    for number in range(10):
        forward = HEALTHY_STEP_MS["forward"] + 0.02 * (number * 7 % 5) + (6.0 if number >= 5 else 0.0)
        plan = RunPlan(phases_ms={**HEALTHY_STEP_MS, "forward": forward}, operators=False)
        file = layout.run_file(build_run(tmp_path / f"digits-{number}", plan))
        manifest = json.loads(file.read_text(encoding="utf-8"))
        manifest["created_unix_ns"] += number * 10**12
        file.write_text(json.dumps(manifest), encoding="utf-8")
    return tmp_path


def test_the_report_says_the_change_of_the_list_of_runs(base: Path) -> None:
    _, history = find_others(open_run(base / "digits-7"), base)
    assert history is not None
    assert (history["since"], history["before"], history["after"]) == ("digits-5", 5, 5)
    text = render_history(history)
    assert text.startswith("History: slower since digits-5: the median step of the 5 runs since then is 70.")
    share = re.search(r"\+(\d+\.\d %) against 64\.", text)
    assert share is not None
    asker = Asker(base)
    asker.ask("/api/v1/runs")  # reads all of them; the page would show those that are not read without figures
    assert f"▲ {share[1]} from here on" in asker.ask("/").text
    assert find_others(open_run(base / "digits-4"), base)[1] is None
    assert render_history(None) == ""


def ask_command(*words: str | Path) -> str:
    done = run("report", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_says_it_where_the_base_directory_is_given(base: Path) -> None:
    assert "\n\nHistory: slower since digits-5: " in ask_command("digits-9", "--summary-base-dir", base)
    assert "History" not in ask_command(base / "digits-9")
    told = ask_command("digits-9", "--json", "--summary-base-dir", base)
    assert json.loads(told)["history"]["since"] == "digits-5"


def test_the_object_has_the_key_where_nothing_is_known(base: Path) -> None:
    assert build_report(open_run(base / "digits-0"))["history"] is None
