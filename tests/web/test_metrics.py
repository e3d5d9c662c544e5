"""GET /metrics, as Prometheus asks for it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.waiting import wait_for

pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from profiler_server.fleet import gauges
from profiler_server.settings import Settings
from tests.support.asking import Asker
from tests.support.live import build_live_run
from tests.support.runs import build_run

TOKEN = "a-token-of-the-test-0123456789"


def read_samples(text: str) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples]
    found = {(s.name, s.labels["run"], *(v for k, v in s.labels.items() if k != "run")): s.value for s in samples}
    assert len(found) == len(samples)
    return found


def test_prometheus_reads_what_is_answered(tmp_path: Path) -> None:
    build_live_run(tmp_path / "team/now", ranks=2)
    build_run(tmp_path / "old")
    answer = Asker(tmp_path).ask("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found = read_samples(answer.text)
    assert found["stepscope_state", "team/now", "recording"] == 1.0
    assert found["stepscope_state", "team/now", "crashed"] == 0.0
    assert found["stepscope_ranks", "team/now"] == 2.0
    step = found["stepscope_step_seconds", "team/now"]
    assert 0.03 < step < 0.1
    phases = {key[2]: value for key, value in found.items() if key[0] == "stepscope_phase_seconds"}
    assert sum(phases.values()) == pytest.approx(step)
    assert found["stepscope_data_wait_ratio", "team/now"] == pytest.approx(phases["data_wait"] / step)
    assert {key[1] for key in found} == {"team/now"}


def test_names_of_runs_cannot_add_series(tmp_path: Path) -> None:
    name = 'x"} 1\nstepscope_step_seconds{run="forged'
    build_live_run(tmp_path / name)
    build_live_run(tmp_path / ("y" * 230))
    asker = Asker(tmp_path)
    until_s = time.monotonic() + 60.0
    runs: set[str] = set()
    while len(runs) < 2 and time.monotonic() < until_s:  # a busy machine completes the list in the background
        runs = {key[1] for key in read_samples(asker.ask("/metrics").text)}
        time.sleep(0.0 if len(runs) == 2 else 0.5)
    assert len(runs) == 2
    assert "forged" not in runs
    assert max(map(len, runs)) <= 200


def test_metrics_stand_behind_the_token_and_the_host_check(tmp_path: Path) -> None:
    build_live_run(tmp_path / "secret")
    asker = Asker(tmp_path, Settings(tmp_path, host="0.0.0.0", token=TOKEN))
    refused = asker.ask("/metrics")
    assert refused.status_code == 401
    assert "secret" not in refused.text
    assert "secret" in asker.ask("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).text
    assert Asker(tmp_path).ask("/metrics", headers={"host": "elsewhere.example"}).status_code == 421
    assert Asker(tmp_path).ask("/metrics", headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_an_empty_folder_gives_metrics_without_values(tmp_path: Path) -> None:
    answer = Asker(tmp_path).ask("/metrics")
    assert answer.status_code == 200
    assert read_samples(answer.text) == {}


def test_many_asking_at_once_cost_one_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_live_run(tmp_path / "now")
    asker = Asker(tmp_path)
    first = asker.ask("/metrics").text
    build_live_run(tmp_path / "later")
    asker.app.state.services.catalog.look_again()
    assert asker.ask("/metrics").text == first
    monkeypatch.setattr(gauges, "REFRESH_S", -1.0)
    monkeypatch.setattr(gauges, "LIST_S", -1.0)
    wait_for(lambda: 'run="later"' in asker.ask("/metrics").text)
