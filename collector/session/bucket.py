"""Upload a run that has a URL: it is recorded on this machine, and another process uploads it meanwhile."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path

from collector.format.schema.wording import format_number_of
from collector.storage.ledger import UploadLedger, list_missing, read_ledger
from collector.storage.process import start_upload
from collector.storage.urls import find_missing_package, find_spool, split_url

PATIENCE_S = 10.0
"""How long the end of a training waits for the upload. A failed last attempt ends the wait."""
_POLL_S = 0.1


class Bucket:
    """The upload of a run to a URL. `spool` is the local folder in which the run is recorded."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.spool = find_spool(self.url)
        self._rank_folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._problem = ""

    def start(self, rank_folder: Path) -> None:
        """Begin to upload a rank. If that fails, `describe_end` reports it."""
        self._rank_folder = rank_folder
        if missing := find_missing_package(self.url):
            self._problem = f"it needs {missing}"
            return
        try:
            self._process = start_upload(rank_folder, self.url)
        except OSError as error:
            self._problem = f"the upload could not be started ({error})"

    def describe_end(self, patience_s: float = PATIENCE_S) -> str:
        """Wait at most `patience_s` for the upload. Return one line: the run's address, or which files are missing
        there and what to do; "" without `start`."""
        if self._rank_folder is None:
            return ""
        if self.url.startswith("memory://"):
            kept = "give a folder, file:// or s3:// instead"
            return f"the run is in {self.spool}: {self.url} is lost when this process ends; {kept}"
        ledger = self._wait(patience_s)
        if ledger.is_done:
            return f"the run is in {self.url}, too; to look at it there: stepscope serve {split_url(self.url)[0]}"
        missing = list_missing(self._rank_folder, ledger)
        size_mib = sum(size for size, _ in missing.values()) / (1 << 20)
        what = f"{format_number_of(len(missing), 'file')} ({size_mib:.1f} MiB)" if missing else "the end of it"
        reason = self._problem or ledger.problem or "it takes longer"
        going_on = "" if self._has_given_up(ledger) else "; the upload goes on by itself"
        url = f"{self.url}-{time.strftime('%Y%m%d-%H%M%S')}" if ledger.is_taken else self.url
        command = f"stepscope upload {shlex.quote(str(self.spool))} {shlex.quote(url)}"
        return (
            f"{what} of rank {self._rank_folder.name.removeprefix('rank_')} not in {self.url} yet: {reason}"
            f"{going_on}. The run is in {self.spool}; to complete the upload: {command}"
        )

    def _wait(self, patience_s: float) -> UploadLedger:
        assert self._rank_folder is not None
        until_s = time.monotonic() + patience_s
        while True:
            has_ended = self._process is None or self._process.poll() is not None
            ledger = read_ledger(self._rank_folder) or UploadLedger(self.url)
            if ledger.is_done or has_ended or ledger.problem or time.monotonic() > until_s:
                return ledger
            time.sleep(_POLL_S)

    def _has_given_up(self, ledger: UploadLedger) -> bool:
        return ledger.is_final or self._process is None or self._process.poll() is not None


def speaks_for_host(rank: int) -> bool:
    """Return whether this rank is the one that prints messages for all ranks of its host."""
    return os.environ.get("LOCAL_RANK", str(rank)) == "0"
