"""A run that is another user's alone is listed with whose it is and what to do, and hides no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import build_run

_ASK = """
import json, sys
from pathlib import Path
from collector.format.run import open_run
from collector.format.schema.errors import RunNotFoundError
from tests.support.asking import Asker
base = Path(sys.argv[1])
asker = Asker(base)
answers = {path: asker.ask(path) for path in sys.argv[2:]}
found = {path: (answer.status_code, answer.text) for path, answer in answers.items()}
for name in ("closed", "half"):
    try:
        open_run(base / name)
    except RunNotFoundError as error:
        found[name] = (0, str(error))
print(json.dumps(found))
"""
_ROOT = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
"""Root reads everything; without these rights it is a user like others."""


def _ask(base: Path, *paths: str) -> dict[str, Any]:
    command = [sys.executable, "-c", _ASK, str(base), *paths]
    done = subprocess.run(
        [*(_ROOT if os.geteuid() == 0 else ()), *command], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base of three runs: `open`, `closed` with a folder that nobody may enter, `half` with such a `profiler/`."""
    folders = {name: build_run(tmp_path / name) for name in ("open", "closed", "half")}
    for folder in (folders["closed"], folders["half"] / "profiler"):
        folder.chmod(0o000)
        if os.geteuid() == 0:
            os.chown(folder, 65534, 65534)
            folder.chmod(0o700)
    return tmp_path


def test_runs_of_another_user_are_listed_with_the_reason(base: Path) -> None:
    found = _ask(base, "/", "/api/v1/runs", "/runs/closed/", "/runs/half/", "/runs/open/", "/api/v1/runs/closed")
    listing = json.loads(found["/api/v1/runs"][1])
    assert [run["id"] for run in listing["runs"]] == ["open"]
    assert found["/"][0] == found["/runs/open/"][0] == 200
    assert found["/runs/closed/"][0] == found["/runs/half/"][0] == found["/api/v1/runs/closed"][0] == 404
    for text in (*(text for _, text in found.values() if text != found["/runs/open/"][1]),):
        assert "PROFILER_SHARED=1" in text
        assert "Traceback" not in text
    if os.geteuid() == 0:
        assert "It belongs to nobody, mode 0700" in found["closed"][1]
        assert "It belongs to nobody, mode 0700" in found["/runs/half/"][1]
        for page in ("/runs/closed/", "/runs/half/", "/api/v1/runs/closed"):
            assert "moved or deleted" not in found[page][1]
            assert "No such run" not in found[page][1]
    assert str(base / "half/profiler") in found["half"][1]
