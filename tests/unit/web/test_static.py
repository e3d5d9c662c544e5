"""Static files: one version for all, nothing from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_server.web import frontend
from profiler_server.web.frontend import StaticFiles


def test_the_version_follows_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend, "CHECK_INTERVAL_S", -1.0)
    (tmp_path / "a.js").write_text("one")
    files = StaticFiles(tmp_path)
    first = files.version
    assert files.version == first
    (tmp_path / "a.js").write_text("another")
    assert files.version != first
    (tmp_path / "a.js").write_text("one")
    assert files.version == first


@pytest.mark.parametrize("path", ["../secret", "sub/../../secret", "/etc/passwd", "a\0b", "sub", "link"])
def test_nothing_outside_is_found(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "static"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_text("x")
    (folder / "link").symlink_to(tmp_path / "secret")
    assert StaticFiles(folder).find(path) is None
