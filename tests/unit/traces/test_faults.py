"""Faults of real files: what can be mended is mended and said, and a file that was cut keeps what it has."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from collector.traces import read_trace
from tests.support.reading import codes_of
from tests.support.traces import build_trace, training_steps, write_trace


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ('"dur": 100.0', '"dur": NaN'),
        ('"name": "aten::linear"', '"name": "aten::\tli\nnear"'),
        ('"dur": 80\n  }', '"dur": 80,\n  }'),
        ('"name": "aten::linear"', '"name": "C:\\Users"'),
        ('"name": "aten::linear"', '"name": "half \\ud800 pair"'),
    ],
)
def test_faults_that_are_known_are_mended_and_said(tmp_path: Path, good: str, bad: str) -> None:
    text = json.dumps(build_trace(training_steps()), indent=1)
    path = tmp_path / "t.json"
    path.write_text(text.replace(good, bad) if good in text else text.replace("}\n ]", "},\n ]"), encoding="utf-8")
    read = read_trace(path)
    assert read.tables["slices"].num_rows == len(training_steps())
    assert "trace_repaired" in codes_of(read)
    assert read.events_lost == 0


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", training_steps())
    path.write_bytes(path.read_bytes().replace(b"aten::linear", b"aten::\xff\xfe"))
    assert read_trace(path).tables["slices"].num_rows == len(training_steps())


@pytest.mark.parametrize("share", [0.3, 0.55, 0.9])
def test_truncated_file_keeps_what_is_before_the_cut(tmp_path: Path, share: float) -> None:
    path = write_trace(tmp_path / "t.json", training_steps(20))
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    read = read_trace(path)
    expected = share * len(training_steps(20))
    assert expected * 0.9 - 3 <= read.tables["slices"].num_rows <= expected * 1.1
    assert "trace_cut_off" in codes_of(read)


def test_truncated_gzip_keeps_what_is_before_the_cut(tmp_path: Path) -> None:
    content = json.dumps(build_trace(training_steps(400))).encode()
    path = tmp_path / "t.json.gz"
    packed = gzip.compress(content)
    path.write_bytes(packed[: len(packed) // 2])
    read = read_trace(path)
    assert 1000 < read.tables["slices"].num_rows < len(training_steps(400))
    assert "trace_cut_off" in codes_of(read)
