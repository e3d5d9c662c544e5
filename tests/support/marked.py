"""The ranges of a loop that was recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from tests.support.recording import record as record_loop


def record_ranges(path: Path, loop: Callable[[], object]) -> pd.DataFrame:
    run = record_loop(path, loop).run
    return run.frame("ranges") if run.rank().status("ranges").state == "there" else pd.DataFrame({"path": []})
