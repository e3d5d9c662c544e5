"""Traces that lie below the base directory: listed, imported by a request, and nothing else taken."""

from __future__ import annotations

import json
import os
import shlex
import time
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from profiler_server.settings import Settings
from profiler_server.web.uploads.imports import Import, Imports
from tests.support.asking import PATIENCE_S, Asker, wait_for_import
from tests.support.traces import training_steps, write_trace


def _order(asker: Asker, *files: str, **headers: str) -> httpx.Response:
    kind = {"Content-Type": "application/json"}
    body = json.dumps({"files": files}).encode()
    return asker.ask("/api/v1/traces/imports", "POST", {**kind, **headers}, body)


def _wait_for_end(imports: Imports, job_id: str) -> Import:
    deadline = time.monotonic() + PATIENCE_S
    while (job := imports.find(job_id)) is not None and job.is_under_way and time.monotonic() < deadline:
        time.sleep(0.01)
    assert job is not None
    return job


class _Rows(HTMLParser):
    """The tags of a page, and what the rows of the offers carry."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.files: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        if tag == "tr" and given:
            self.attributes |= set(given)
            self.files += json.loads(given["data-files"] or "")


@pytest.fixture
def asker(tmp_path: Path) -> Asker:
    (tmp_path / "base/team").mkdir(parents=True)
    return Asker(tmp_path / "base")


def test_a_plain_trace_is_offered_and_becomes_a_run(asker: Asker, tmp_path: Path) -> None:
    write_trace(tmp_path / "base/team/plain.json", training_steps())
    (offer,) = asker.ask("/api/v1/traces").json()
    assert (offer["name"], offer["files"]) == ("team/plain.json", ["team/plain.json"])
    assert offer["size_bytes"] == (tmp_path / "base/team/plain.json").stat().st_size
    job = wait_for_import(asker, _order(asker, *offer["files"]))
    assert (job["state"], job["href"]) == ("done", "/runs/plain/")
    assert asker.ask(job["href"]).status_code == 200
    assert (tmp_path / "base/team/plain.json").exists()
    assert _order(asker, *offer["files"]).status_code == 404  # a run was made of it
    assert asker.ask("/api/v1/traces").json() == []


def test_a_trace_put_there_while_the_server_runs_can_be_imported_at_once(asker: Asker, tmp_path: Path) -> None:
    assert asker.ask("/api/v1/traces").json() == []
    write_trace(tmp_path / "base/late.json", training_steps())
    assert wait_for_import(asker, _order(asker, "late.json"))["state"] == "done"


def test_the_ranks_in_a_folder_become_one_run(asker: Asker, tmp_path: Path) -> None:
    for rank in (0, 1):
        head = {"distributedInfo": {"rank": rank, "world_size": 2}}
        write_trace(tmp_path / f"base/team/host{rank}.json", training_steps(), head)
    (offer,) = asker.ask("/api/v1/traces").json()
    assert (offer["name"], len(offer["files"])) == ("team/", 2)
    assert offer["command"].endswith("--name team-2")  # the folder of the traces has the name
    job = wait_for_import(asker, _order(asker, *offer["files"]))
    assert job["run_id"] == "team-2"
    assert asker.ask("/api/v1/runs").json()["runs"][0]["ranks"] == [0, 1]
    assert asker.ask("/api/v1/traces").json() == []


@pytest.mark.parametrize(
    "name", ["../outside.json", "/etc/passwd", "link.json", "team/../plain.json", "", "notes.json", "absent.json"]
)
def test_only_what_is_listed_is_imported(asker: Asker, tmp_path: Path, name: str) -> None:
    write_trace(tmp_path / "outside.json", training_steps())
    write_trace(tmp_path / "base/plain.json", training_steps())
    (tmp_path / "base/link.json").symlink_to(tmp_path / "outside.json")
    (tmp_path / "base/notes.json").write_text("{}")
    refused = _order(asker, name)
    assert refused.status_code == 404
    assert "is not among the traces" in refused.json()["error"]["message"]
    assert _order(asker, "plain.json", name).status_code == 404


@pytest.mark.parametrize("body", [b"", b"[]", b'{"files": []}', b'{"files": [{}]}', b'{"files": "plain.json"}', b"{"])
def test_an_order_that_names_no_files_is_refused(asker: Asker, body: bytes) -> None:
    answer = asker.ask("/api/v1/traces/imports", "POST", {"Content-Type": "application/json"}, body)
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]["message"]


def test_where_uploads_are_off_the_command_is_left(asker: Asker, tmp_path: Path) -> None:
    write_trace(tmp_path / "base/plain.json", training_steps())
    off = Asker(tmp_path / "base", Settings(tmp_path / "base", upload_limit_bytes=0))
    assert _order(off, "plain.json").status_code == 403
    assert "profiler-server import" in off.ask("/").text
    assert "data-import-trace" not in off.ask("/").text
    assert "data-import-trace" in asker.ask("/").text


def test_a_broken_trace_fails_with_one_line_and_stays_listed(asker: Asker, tmp_path: Path) -> None:
    (tmp_path / "base/bad.json").write_text('{"traceEvents": []}')
    job = wait_for_import(asker, _order(asker, "bad.json"))
    assert job["state"] == "failed"
    assert "bad.json" in job["error"]
    assert str(tmp_path) not in job["error"]
    assert "\n" not in job["error"]
    (offer,) = asker.ask("/api/v1/traces").json()
    assert (offer["name"], offer["import_id"], offer["error"]) == ("bad.json", None, job["error"])
    assert "offer-state failed" in asker.ask("/").text


def test_a_second_order_joins_the_import_that_is_under_way(asker: Asker, tmp_path: Path) -> None:
    write_trace(tmp_path / "base/plain.json", training_steps())
    first, second = _order(asker, "plain.json"), _order(asker, "plain.json")
    assert first.json()["id"] == second.json()["id"]
    assert f'data-import="{first.json()["id"]}"' in asker.ask("/").text
    assert wait_for_import(asker, first)["run_id"] == "plain"


def test_a_file_that_became_a_link_while_it_waited_is_not_read(tmp_path: Path) -> None:
    write_trace(tmp_path / "outside.json", training_steps())
    (tmp_path / "base").mkdir()
    (tmp_path / "base/plain.json").symlink_to(tmp_path / "outside.json")
    imports = Imports((tmp_path / "base").resolve())
    job = imports.start_below([(tmp_path / "base").resolve() / "plain.json"], "plain")
    ended = _wait_for_end(imports, job.id)
    assert (ended.state, ended.run_id) == ("failed", None)
    assert "links are not followed" in str(ended.error)
    assert [path.name for path in (tmp_path / "base").iterdir()] == ["plain.json"]


def test_names_that_are_not_utf_8_are_left_out_and_the_list_says_so(asker: Asker, tmp_path: Path) -> None:
    write_trace(tmp_path / "base/plain.json", training_steps())
    os.rename(tmp_path / "base/plain.json", os.fsencode(tmp_path / "base") + b"/\xff.json")
    assert asker.ask("/api/v1/traces").json() == []
    assert "names that are not UTF-8" in asker.ask("/").text


def test_hostile_names_are_shown_as_text(asker: Asker, tmp_path: Path) -> None:
    names = ["x onclick=alert(1) <b>.json", "\u202egnp.json", "a'b\"c\nd.json", "--help.json", "n" * 240 + ".json"]
    for name in names:
        write_trace(tmp_path / "base" / name, training_steps())
    parser = _Rows()
    parser.feed(asker.ask("/").text)
    assert sorted(parser.files) == sorted(names)
    assert parser.attributes == {"data-files"}
    assert "b" not in parser.tags
    offers = asker.ask("/api/v1/traces").json()
    assert all(shlex.split(offer["command"])[2] == str(tmp_path / "base" / offer["name"]) for offer in offers)
