"""Lose the power after any operation of a recording, and see what a user gets: python -m tests.disk.losing [prefixes]."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from collector.format.run import open_run
from collector.format.schema.errors import StepscopeError
from collector.sidecar.process import recover_run
from profiler_server.report import build_report
from tests.disk.forgetting import Disk, Loss, Operation, read_operations
from tests.disk.watching import build_watch, run_watched

LOSSES: tuple[Loss, ...] = ("all", "contents", "some")


def record_watched(folder: Path) -> list[Operation]:
    """Return the operations of a recording of some 60 steps."""
    run_watched(build_watch(folder), "tests.disk.recorded", folder / "disk", folder / "log")
    with open(folder / "log", "rb") as file:
        return list(read_operations(file))


def lose_everywhere(operations: list[Operation], folder: Path, prefixes: Iterable[int]) -> list[str]:
    """Return what was wrong after a loss of power behind the first so many operations, a line each."""
    wrong, chosen = [], set(prefixes)
    disk, least = Disk(str(folder / "disk")), 0
    for number, operation in enumerate(operations, 1):
        disk.apply(operation)
        if operation.kind == "note":
            least = int(operation.path.split()[1])
        for loss in LOSSES if number in chosen else ():
            left = folder / "left"
            disk.lose_power(loss, left, number)
            problem = find_fault(left / "run", least)
            if problem:
                wrong.append(f"{loss} lost after {number} ({operation.kind} {operation.path}): {problem}")
            shutil.rmtree(left)
    return wrong


def find_fault(path: Path, least: int) -> str:
    """Open, recover and report what is left, as a user would; return what is wrong with it, "" if nothing."""
    try:
        open_run(path)
        recover_run(path)
        build_report(open_run(path))
        first = open_run(path).rank(0)
        steps = [row["step"] for row in first.table("steps", ("step", "kind")).to_pylist() if row["kind"] == "train"]
    except StepscopeError as error:
        return f"{error}, but {least} steps were synced" if least else ""
    if len(steps) < least:
        return f"{len(steps)} steps of {least} that were synced"
    return "" if steps == list(range(1, len(steps) + 1)) else f"steps {steps[:3]} … {steps[-3:]}"


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as name:
        operations = record_watched(Path(name))
        count = min(int(arguments[0]), len(operations)) if arguments else len(operations)
        prefixes = random.Random(1).sample(range(1, len(operations) + 1), count)
        wrong = lose_everywhere(operations, Path(name), prefixes)
    print("\n".join(wrong))
    print(f"{len(operations)} operations; {count} prefixes, each lost in {len(LOSSES)} ways: {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
