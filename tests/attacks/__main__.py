"""Make all attempts, or those whose names contain a word, and print the counts.

python -m tests.attacks [word …] [--jobs 2] [--verbose]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.attacks.attempts import list_attempts
from tests.attacks.making import FAULTS, Outcome, make


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks")
    parser.add_argument("words", nargs="*", help="make the attempts whose names contain one of these")
    parser.add_argument("--jobs", type=int, default=1, help="attempts at a time")
    parser.add_argument("--verbose", action="store_true", help="print what every attempt said")
    given = parser.parse_args(arguments)
    chosen = [one for one in list_attempts() if not given.words or any(word in one.name for word in given.words)]
    counts: Counter[str] = Counter()
    with ThreadPoolExecutor(given.jobs) as pool:
        for outcome in pool.map(make, chosen):
            counts.update(outcome.faults)
            print(render(outcome, given.verbose), flush=True)
    print(f"{len(chosen)} attempts:", ", ".join(f"{fault} {counts[fault]}" for fault in FAULTS))
    return 1 if counts else 0


def render(outcome: Outcome, is_verbose: bool = False) -> str:
    """Return a line for an attempt, and what it said if it failed."""
    verdict = "; ".join(outcome.faults) or "ok"
    line = f"{outcome.name}: {outcome.recorded} steps, end {outcome.end_s:.1f} s, exit {outcome.code}: {verdict}"
    said = outcome.said.strip().replace("\n", "\n    ")
    return f"{line}\n    {said}" if outcome.faults or is_verbose else line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
