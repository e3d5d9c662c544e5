"""Whatever call to the disk fails, the recorder names the reason and leaves a run that is completed later."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.disk.watching import COMPILER, build_watch, run_watched


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_whatever_call_fails_the_reason_is_named_and_the_run_is_completed_later(tmp_path: Path) -> None:
    printed = run_watched(build_watch(tmp_path), "tests.disk.failing", "25")
    assert printed.splitlines()[-1].endswith(" failures tried, 0 wrong")
