"""Check many mutated inputs of one kind, and keep the smallest that fails of each fault.

python -m tests.fuzz manifests --count 100000 --seed 1
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz import kinds
from tests.fuzz.frame import Case, Failure, Tally, make_cases, read_corpus, run_cases

_PER_WORKER = 500
"""Cases of one process: one that grows shows it, and a machine is not filled by it."""
_ADDRESSES_BYTES = 12 << 30
_LONGEST_S = 120


@dataclass(frozen=True)
class Stretch:
    """Which cases: `count` of a kind from number `first` of a seed."""

    kind: str
    seed: int
    first: int
    count: int
    corpus: bool = False


@dataclass
class Totals:
    checked: int = 0
    accepted: int = 0
    refused: int = 0
    smallest: dict[str, Failure] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)

    def note(self, failure: Failure) -> None:
        known = self.smallest.get(failure.signature)
        self.times[failure.signature] = self.times.get(failure.signature, 0) + 1
        if known is None or len(failure.case.content) < len(known.case.content):
            self.smallest[failure.signature] = failure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=kinds.NAMES)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="where failing inputs are kept")
    parser.add_argument("--corpus", action="store_true", help="check what once failed, too")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    stretch = Stretch(given.kind, given.seed, given.first, given.count, given.corpus)
    if given.worker is not None:
        work(stretch, given.worker)
        return 0
    return drive(stretch, given.keep)


def work(stretch: Stretch, report: Path) -> None:
    """Check cases in this process. It says which it is at, since a case may end the process."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES_BYTES, _ADDRESSES_BYTES))
    at = report.with_suffix(".case")

    def note(case: Case, tally: Tally) -> None:
        signal.alarm(_LONGEST_S)  # which ends the process: an input that hangs is found as one that kills
        at.write_bytes(case.encode())
        write(tally)

    def write(tally: Tally) -> None:
        failures = [[one.signature, one.text, one.case.encode().hex()] for one in tally.failures]
        report.write_text(json.dumps([tally.accepted, tally.refused, failures]), "utf-8")

    with tempfile.TemporaryDirectory() as folder:
        kind = kinds.load_kind(stretch.kind)(Path(folder))
        known = list(read_corpus(stretch.kind).values()) if stretch.corpus else []
        made = make_cases(kind, stretch.count, stretch.seed, stretch.first)
        write(run_cases(kind, itertools.chain(known, made), note))
        at.unlink(missing_ok=True)
        signal.alarm(0)
        kind.close()


def drive(stretch: Stretch, keep: Path) -> int:
    """Check all cases in processes of their own, print what was found, and return 1 if anything failed."""
    totals, started_s, is_first = Totals(), time.monotonic(), True
    try:
        while totals.checked < stretch.count:
            count = min(_PER_WORKER, stretch.count - totals.checked)
            run_worker(
                Stretch(stretch.kind, stretch.seed, stretch.first + totals.checked, count, is_first and stretch.corpus),
                totals,
            )
            is_first = False
            _show(totals, time.monotonic() - started_s)
    finally:
        folder = keep / stretch.kind
        folder.mkdir(parents=True, exist_ok=True)
        for number, failure in enumerate(totals.smallest.values()):
            (folder / f"{stretch.seed}-{number}").write_bytes(failure.case.encode())
            (folder / f"{stretch.seed}-{number}.txt").write_text(
                f"{failure.signature}\n{failure.text}", "utf-8", "replace"
            )
            print(f"{totals.times[failure.signature]:5} x {failure.signature} ({folder / f'{stretch.seed}-{number}'})")
    return 1 if totals.smallest else 0


def run_worker(stretch: Stretch, totals: Totals) -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        command = [sys.executable, "-m", "tests.fuzz", stretch.kind, "--worker", str(report)]
        numbers = ["--count", str(stretch.count), "--seed", str(stretch.seed), "--first", str(stretch.first)]
        numbers += ["--corpus"] if stretch.corpus else []
        with (Path(folder) / "output").open("w+b") as output:
            done = subprocess.run([*command, *numbers], stdout=subprocess.DEVNULL, stderr=output, check=False)
            output.seek(0)
            words = output.read().decode("utf-8", "replace")[-4000:]
        if not report.exists():
            raise SystemExit(f"the worker ended with {done.returncode} before its first case:\n{words}")
        accepted, refused, failures = json.loads(report.read_text("utf-8"))
        for signature, text, case in failures:
            totals.note(Failure(signature, text, Case.decode(bytes.fromhex(case))))
        totals.checked += accepted + refused + len(failures)
        totals.accepted += accepted
        totals.refused += refused
        at = report.with_suffix(".case")
        if done.returncode and at.exists():
            totals.checked += 1
            totals.note(Failure(f"the process ends with {done.returncode}", words, Case.decode(at.read_bytes())))
        elif done.returncode:
            raise SystemExit(f"the worker ended with {done.returncode}:\n{words}")


def _show(totals: Totals, seconds: float) -> None:
    print(
        f"{totals.checked:,} checked: {totals.accepted:,} accepted, {totals.refused:,} refused, "
        f"{sum(totals.times.values()):,} failed in {len(totals.smallest)} ways, {seconds:,.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
