"""The report as one HTML file: whole, offline, bounded, and without the user's names where that is asked for."""

from __future__ import annotations

import base64
import html
import re
from pathlib import Path

import pytest

from collector.format.run import open_run
from profiler_server.report import build_report
from profiler_server.report.text import render_text
from profiler_server.web.report_file import render_report
from tests.support.asking import Asker
from tests.support.panorama import PANORAMA
from tests.web.test_command_line import assert_refused, run

SECRETS = ("DigitFiles", "SmallCnn", "secret-host", "Rotate", "my_own_op", "train.py", "my-run")


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


def test_no_name_of_the_user_is_left_when_redacted(runs: Path) -> None:
    rich = open_run(runs / "rich")
    shown = render_report(rich, redact=True)
    assert "names redacted" in shown
    for secret in (*SECRETS, rich.manifest.host, str(runs)):
        assert not re.search(rf"\b{re.escape(secret)}\b", shown), secret
    assert "aten::mm" in shown


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
