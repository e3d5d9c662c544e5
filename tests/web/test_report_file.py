"""The report as one HTML file: whole, offline, bounded, and without the user's names where that is asked for."""

from __future__ import annotations

import base64
import html
import json
import re
from pathlib import Path

import pytest

from collector.format.run import open_run
from profiler_server.commands.report import find_others
from profiler_server.report import build_report
from profiler_server.report.text import render_history, render_text
from profiler_server.web.report_file import render_report
from tests.support.asking import Asker
from tests.support.live import edit_run
from tests.support.panorama import PANORAMA
from tests.support.runs import HEALTHY_STEP_MS, RunPlan, build_run
from tests.web.test_command_line import assert_refused, run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("reports")
    for kind, build in PANORAMA.items():
        build(base / kind)
    return base


@pytest.mark.parametrize("redact", [False, True])
@pytest.mark.parametrize("kind", PANORAMA)
def test_the_file_is_whole_and_small(runs: Path, kind: str, redact: bool) -> None:
    text = render_report(open_run(runs / kind), redact)
    assert text.startswith("<!doctype html>")
    assert "<h1" in text
    assert len(text) < 250_000
    addresses = re.findall(r"""(?:href|src|url)\s*[=(]\s*["']?([^"')>\s]+)""", text)
    assert [address for address in addresses if not address.startswith(("data:", "#"))] == []
    assert re.search(r"<script|javascript:|https?://(?!www\.w3\.org)", text) is None
    styles = base64.b64decode(re.findall(r"base64,([^\"]+)", text)[0]).decode()
    assert "prefers-color-scheme: dark" in styles
    assert "[data-theme" not in styles


def test_it_says_what_the_pages_say(runs: Path) -> None:
    text = render_report(open_run(runs / "no-gpu"))
    for words in ("Highly input-bound", "Data wait", "Suggestions", "aten::mm", "worker queue"):
        assert words in text


def test_hostile_names_are_text(runs: Path) -> None:
    shown = render_report(open_run(runs / "hostile"))
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown


def test_the_command_writes_it_and_refuses_what_makes_no_sense(runs: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    done = run("report", runs / "rich", "--html", target, "--redact")
    assert done.returncode == 0, done.stderr
    assert "report.html" in done.stdout
    assert target.read_text("utf-8").startswith("<!doctype html>")
    assert_refused(run("report", runs / "rich", "--redact"), "--html FILE")
    assert_refused(run("report", runs / "rich", "--html", tmp_path / "no/where.html"), "cannot be written")


def test_a_short_trace_reads_as_on_the_pages(runs: Path) -> None:
    """Nothing was left out of its means, and that no rule fired is said as the suggestions of the pages say it."""
    run_of = open_run(runs / "imported")
    shown, text = render_report(run_of), render_text(build_report(run_of), run_of)
    page = Asker(runs).ask("/runs/imported/").text
    assert "every step counted" in shown
    assert "Self time on the device" in shown
    assert "Recording cost" not in shown
    for place in (shown, text, page):
        assert "Trace longer" in html.unescape(place)
        assert "No rule found" not in place
        assert "analyse()" not in place


def test_the_means_of_a_recorded_run_leave_out_its_windows(runs: Path) -> None:
    assert "3 steps left out: detailed windows" in render_report(open_run(runs / "rich"))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Ten runs of a script; from the sixth on forward takes 6 ms longer."""
    for number in range(10):
        forward = HEALTHY_STEP_MS["forward"] + 0.02 * (number * 7 % 5) + (6.0 if number >= 5 else 0.0)
        plan = RunPlan(phases_ms={**HEALTHY_STEP_MS, "forward": forward}, operators=False)
        edit_run(build_run(tmp_path / f"digits-{number}", plan), created_unix_ns=(number + 1) * 10**12)
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


def test_the_command_says_the_change_where_the_base_directory_is_given(base: Path) -> None:
    assert "\n\nHistory: slower since digits-5: " in ask_command("digits-9", "--summary-base-dir", base)
    assert "History" not in ask_command(base / "digits-9")
    told = ask_command("digits-9", "--json", "--summary-base-dir", base)
    assert json.loads(told)["history"]["since"] == "digits-5"
    assert build_report(open_run(base / "digits-0"))["history"] is None
