"""Ctrl-C while a detailed window is written: the traceback is the script's, as if no window were there."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import pytest

from collector.signals import window
from tests.support.recording import record
from tests.support.shapes import plain


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a bare raise brings the frames back")
def test_its_traceback_has_no_frame_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def loop() -> None:
        monkeypatch.setattr(window._Window, "save", interrupt)
        try:
            plain()
        except KeyboardInterrupt as error:
            seen.append([frame.filename for frame in traceback.extract_tb(error.__traceback__)])

    record(tmp_path, loop, window=(2, 1))
    assert [[Path(name).name for name in names] for names in seen] == [
        [Path(__file__).name, "__init__.py", "__init__.py"]
    ]
