"""The fact `checkout`: the git commit of the script's folder, and whether tracked files differed from it.

Git is asked once, at the start of the run, in a thread of the sidecar: the training does not wait for it. Only rank 0
asks, so that a job of many ranks reads the folder once.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from collector.edge import log_failure
from collector.git import ask_git
from collector.notes import read_notes
from collector.ring.clock import Clock
from collector.sidecar.assembler import Assembler

_MOST_BYTES = 1 << 16
_SHORTEST_ID, _LONGEST_ID = 40, 64


class CheckoutAssembler(Assembler):
    kept = ("checkout",)

    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        super().__init__(rank_folder, clock)
        self._checkout: dict[str, Any] = {}

    def follow(self, trainer: int) -> None:
        if read_notes(self.rank_folder).rank == 0:
            threading.Thread(target=self._ask, args=(trainer,), name="stepscope-checkout", daemon=True).start()

    def describe(self) -> dict[str, Any]:
        return {"facts": {"checkout": self._checkout}} if self._checkout else {}

    def _ask(self, trainer: int) -> None:
        with log_failure("the commit of the script is not known"):
            self._checkout = read_checkout(find_script_folder(trainer))


def find_script_folder(pid: int) -> Path:
    """Return the folder of the script that a process runs; its working folder if its command names no file."""
    here = Path(os.readlink(f"/proc/{pid}/cwd"))
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        words = os.fsdecode(file.read(_MOST_BYTES)).split("\0")
    script = next((path for word in words if word.endswith(".py") and (path := here / word).is_file()), None)
    return here if script is None else script.resolve().parent


def read_checkout(folder: Path) -> dict[str, Any]:
    """Return `commit` and `is_dirty` of the git checkout that a folder lies in; empty outside of one."""
    told = ask_git(
        folder,
        *_leave_out_filters(folder),
        "status",
        "--porcelain=v2",
        "--branch",
        "--untracked-files=no",
        "--ignore-submodules",
    )
    commit, _, changed = (told or "").removeprefix("# branch.oid ").partition("\n")
    is_id = _SHORTEST_ID <= len(commit) <= _LONGEST_ID and commit.isalnum()
    return (
        {"commit": commit, "is_dirty": any(not line.startswith("#") for line in changed.splitlines())} if is_id else {}
    )


def _leave_out_filters(folder: Path) -> list[str]:
    """Return words that keep git from starting the user's filters: Git LFS would write large files to the checkout."""
    found = ask_git(folder, "config", "--name-only", "--get-regexp", r"^filter\..*\.(clean|process|required)$") or ""
    return [
        word
        for name in found.splitlines()
        for word in ("-c", f"{name}=false" if name.endswith(".required") else f"{name}=")
    ]


ASSEMBLER = CheckoutAssembler
