"""There is one live profiler in a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector import Profiler, active_profiler
from collector.format.schema.errors import SessionError

pytestmark = pytest.mark.usefixtures("alone")


def test_a_second_live_profiler_is_refused_by_name_of_the_first(profiler: Profiler, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"already recording to .*run; call its analyse\(\)") as refused:
        Profiler(tmp_path / "other")
    assert "if you no longer hold it: collector.active_profiler().analyse()" in str(refused.value)


def test_a_profiler_that_could_not_record_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    Profiler(tmp_path / "file", window=None)
    assert active_profiler() is None
    Profiler(tmp_path / "run", window=None).analyse()


def test_a_profiler_that_was_lost_is_found_again(profiler: Profiler) -> None:
    assert active_profiler() is profiler
    profiler.analyse()
    assert active_profiler() is None
