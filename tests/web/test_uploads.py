"""Uploads: a run of what was sent, or a clear refusal with nothing left behind."""

from __future__ import annotations

import gzip
import html
import json
import pickle
from pathlib import Path

import httpx
import pytest

from collector.format.packed import write_pack
from collector.format.run import open_run
from collector.format.schema.removal import scratch_folder
from collector.traces.reading import NAME_PATTERN, SUFFIXES, is_trace_name
from profiler_server.settings import Settings
from profiler_server.store.traces import find_free_name, name_run
from profiler_server.web.uploads.imports import UPLOAD_FOLDER
from tests.support.asking import Asker, wait_for_import
from tests.support.dumps import make_dump, make_entry
from tests.support.packets import Converter
from tests.support.runs import RunPlan, build_run
from tests.support.traces import build_trace, training_steps

BOUNDARY = "b-o-u-n-d"
TRACE = json.dumps(build_trace(training_steps())).encode()


def _encode(*files: tuple[str, bytes]) -> bytes:
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
        + data
        + b"\r\n"
        for name, data in files
    ]
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def _send(asker: Asker, body: bytes, **headers: str) -> httpx.Response:
    kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    return asker.ask("/api/v1/imports", "POST", {**kind, **headers}, body)


def _list(base: Path) -> list[str]:
    return sorted(path.name for path in base.iterdir())


@pytest.fixture
def asker(tmp_path: Path) -> Asker:
    return Asker(tmp_path)


def test_a_trace_that_is_sent_becomes_a_run(asker: Asker, tmp_path: Path) -> None:
    job = wait_for_import(asker, _send(asker, _encode(("my train.pt.trace.json.gz", gzip.compress(TRACE)))))
    assert (job["state"], job["run_id"], job["href"]) == ("done", "my-train", "/runs/my-train/")
    assert asker.ask(job["href"]).status_code == 200
    assert _list(tmp_path) == ["my-train"]


def test_several_files_are_the_ranks_of_one_run(asker: Asker, tmp_path: Path) -> None:
    job = wait_for_import(asker, _send(asker, _encode(("rank0.json", TRACE), ("rank1.json", TRACE))))
    assert job["run_id"] == "rank0"
    assert _list(tmp_path / "rank0/profiler") == ["rank_0", "rank_1", "run.json"]


def test_traces_of_perfetto_are_the_ranks_of_one_run(asker: Asker, tmp_path: Path) -> None:
    made = Converter(json.loads(TRACE))
    made.write_live(made.slices)
    packets = made.writer.trace.SerializeToString()
    files = ("rank0.pftrace", packets), ("rank1.pftrace.gz", gzip.compress(packets))
    job = wait_for_import(asker, _send(asker, _encode(*files)))
    assert (job["state"], job["run_id"]) == ("done", "rank0")
    run = open_run(tmp_path / "rank0")
    kinds = [run.rank(rank).table("steps").column("kind").to_pylist() for rank in run.ranks]
    assert [kind.count("train") for kind in kinds] == [3, 3]


def test_what_the_command_takes_the_page_takes(asker: Asker, tmp_path: Path) -> None:
    dumps = [(f"trace_rank_{rank}", pickle.dumps(make_dump([make_entry(1)], "[0, 1]"), 2)) for rank in (0, 1)]
    job = wait_for_import(asker, _send(asker, _encode(*dumps)))
    assert (job["state"], job["run_id"]) == ("done", "trace_rank_0")
    names = [f"a{suffix}" for suffix in SUFFIXES]
    assert all(is_trace_name(name) and is_trace_name(name.upper()) for name in names)
    assert f'data-names="{html.escape(NAME_PATTERN)}"' in asker.ask("/").text


def test_a_packed_run_that_is_sent_is_that_run_again(asker: Asker, tmp_path: Path) -> None:
    with scratch_folder() as folder:
        write_pack(open_run(build_run(folder / "digits")), folder / "digits.stepscope")
        packed = (folder / "digits.stepscope").read_bytes()
    job = wait_for_import(asker, _send(asker, _encode(("digits.stepscope", packed))))
    assert (job["state"], job["run_id"]) == ("done", "digits")
    assert asker.ask(job["href"]).status_code == 200
    assert open_run(tmp_path / "digits").state == "complete"


def test_what_is_no_pack_fails_with_a_reason_and_leaves_nothing(asker: Asker, tmp_path: Path) -> None:
    job = wait_for_import(asker, _send(asker, _encode(("bad.stepscope", b"PK\x03\x04 no pack"))))
    assert (job["state"], job["run_id"]) == ("failed", None)
    assert "bad.stepscope is no packed run" in job["error"]
    assert str(tmp_path) not in job["error"]
    assert _list(tmp_path) == []


def test_a_name_that_is_taken_gets_a_number(asker: Asker, tmp_path: Path) -> None:
    build_run(tmp_path / "a", RunPlan(steps=3))
    assert wait_for_import(asker, _send(asker, _encode(("a.json", TRACE))))["run_id"] == "a-2"


@pytest.mark.parametrize("data", [b"", b"\x1f\x8b broken"])
def test_a_broken_trace_fails_with_a_reason_and_leaves_nothing(asker: Asker, tmp_path: Path, data: bytes) -> None:
    job = wait_for_import(asker, _send(asker, _encode(("bad.json", data))))
    assert (job["state"], job["run_id"]) == ("failed", None)
    assert "bad.json" in job["error"]
    assert str(tmp_path) not in job["error"]
    assert _list(tmp_path) == []


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (_encode(), None, 400),
        (_encode(("notes.txt", b"x")), None, 400),
        (_encode(("../../etc/passwd", b"x")), None, 400),
        (b"garbage", None, 400),
        (_encode(("a.json", TRACE))[:-40], None, 400),
        (TRACE, "application/json", 400),
    ],
)
def test_what_is_no_upload_is_refused(asker: Asker, tmp_path: Path, body: bytes, kind: str | None, status: int) -> None:
    answer = _send(asker, body, **({"Content-Type": kind} if kind else {}))
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    assert _list(tmp_path) == []


def test_a_name_cannot_lead_out_of_the_folder(asker: Asker, tmp_path: Path) -> None:
    job = wait_for_import(asker, _send(asker, _encode(("../../../x/..\\evil.json", TRACE))))
    assert job["run_id"] == "evil"
    assert _list(tmp_path) == ["evil"]


def test_too_much_is_refused_before_and_while_it_comes(tmp_path: Path) -> None:
    small = Asker(tmp_path, Settings(tmp_path, upload_limit_bytes=200))
    body = _encode(("a.json", TRACE))
    assert _send(small, body).status_code == 413
    chunked = _send(small, body, **{"Content-Length": "100"})
    assert chunked.status_code == 413
    assert "import the file on the server" in chunked.json()["error"]["message"]
    assert _list(tmp_path) == []


def test_uploads_can_be_switched_off(tmp_path: Path) -> None:
    off = Asker(tmp_path, Settings(tmp_path, upload_limit_bytes=0))
    assert _send(off, _encode(("a.json", TRACE))).status_code == 403
    assert 'id="drop"' not in off.ask("/").text
    assert 'id="drop"' in Asker(tmp_path).ask("/").text


def test_files_of_a_server_that_was_killed_are_no_run(tmp_path: Path) -> None:
    build_run(tmp_path / UPLOAD_FOLDER / "old")
    assert Asker(tmp_path).ask("/api/v1/runs").json()["total"] == 0


def test_names_of_runs_are_safe_and_free(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a-2").mkdir()
    assert find_free_name(tmp_path, "a") == "a-3"
    assert (name_run("x y.pt.trace.json.gz"), name_run("...json"), name_run("é.json")) == ("x-y", "trace", "trace")
