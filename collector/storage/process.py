"""The process that uploads a rank while it is recorded: `python -m collector.storage.process RANK_FOLDER URL`.

The process is separate from the recorder, so that a URL without an answer delays only the upload.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from collector.edge import Edge
from collector.expendable import build_environment
from collector.format.alive import is_alive
from collector.format.schema.errors import OutputError, StepscopeError
from collector.format.schema.inside import open_inside
from collector.notes import read_notes
from collector.sidecar.process import has_ended
from collector.storage.ledger import write_ledger
from collector.storage.uploading import RankUpload
from collector.storage.urls import explain, lacks_keys

LOOK_S = 1.0
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
GIVE_UP_S = 600.0
"""Seconds for which an ended run's upload is tried. Then the user can complete it by the command in the message."""
LOG_FILE = ".upload.log"
_log = logging.getLogger("stepscope")


def start_upload(rank_folder: Path, url: str) -> subprocess.Popen[bytes]:
    """Start the process that uploads a rank, in a POSIX session of its own. Raise OSError if that fails."""
    with open(rank_folder / LOG_FILE, "ab", opener=open_inside) as output:
        return subprocess.Popen(
            [sys.executable, "-m", "collector.storage.process", str(rank_folder), url],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=build_environment(),
            start_new_session=True,
        )


class Follower:
    def __init__(self, rank_folder: Path, url: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self._folder = rank_folder
        self._upload = RankUpload(rank_folder, url)
        self._sleep = sleep
        self._failures = 0

    def follow(self) -> bool:
        """Upload new files again and again. Return True once the rank has ended and all is uploaded, False if the
        upload is given up or the run is removed."""
        given_up_s = float("inf")
        while self._folder.is_dir():
            has_ended = is_over(self._folder)
            if has_ended:
                given_up_s = min(given_up_s, time.monotonic() + GIVE_UP_S)
            with Edge(self._fail):
                self._upload.upload()
                self._failures, self._upload.ledger.problem = 0, ""
                if has_ended:
                    self._upload.finish()
                    return True
            if self._upload.ledger.is_final or time.monotonic() > given_up_s:
                return False
            self._sleep(LOOK_S if not self._failures else self.wait_s)
        return False

    @property
    def wait_s(self) -> float:
        return min(FIRST_WAIT_S * 2.0 ** (self._failures - 1), LONGEST_WAIT_S)

    def _fail(self, error: Exception) -> None:
        ledger = self._upload.ledger
        self._failures += 1
        ledger.problem = explain(error)
        ledger.is_taken = isinstance(error, OutputError)
        ledger.is_final = lacks_keys(error) or isinstance(error, StepscopeError)
        write_ledger(self._folder, ledger)
        _log.warning("stepscope: %s: %s", ledger.url, ledger.problem)


def is_over(rank_folder: Path) -> bool:
    """Return whether the files of a rank are final: the rank has ended, or no process is left that could write them."""
    if has_ended(rank_folder):
        return True
    try:
        notes = read_notes(rank_folder)
    except (OSError, ValueError):
        return has_ended(rank_folder) or not rank_folder.is_dir()
    # The recorder finishes what a dead training left; it has a minute for that.
    return not is_alive(notes.pid, notes.pid_started) and _is_stale(rank_folder)


def _is_stale(rank_folder: Path) -> bool:
    newest = max((path.stat().st_mtime for path in rank_folder.iterdir()), default=0.0)
    return time.time() - newest > LONGEST_WAIT_S


def main(arguments: list[str]) -> int:
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    return 0 if Follower(Path(arguments[0]), arguments[1]).follow() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
