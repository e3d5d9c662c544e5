"""The command: `python -m tests.mutation [--jobs N] [--sample N] [--match TEXT] ROOM…`, or `all`, or `--planted`."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.mutation.equivalents import find_equivalent
from tests.mutation.mutants import Mutant, list_mutants
from tests.mutation.rooms import PLANTED, ROOMS, Planted, Room
from tests.mutation.running import ROOT, BaselineError, Result, Trial, try_mutants


def main() -> int:
    """Run the rooms; 1 if a mutant survived, 2 if a room cannot be tried."""
    parser = argparse.ArgumentParser("python -m tests.mutation", description=__doc__)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"all, or some of: {', '.join(ROOMS)}")
    parser.add_argument("--planted", action="store_true", help="try the mistakes that are planted by hand")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time (default: 1)")
    parser.add_argument("--sample", type=int, default=0, help="at most so many of a room, chosen at random (seed 1)")
    parser.add_argument("--match", default="", metavar="TEXT", help="only mutants whose line of output holds this text")
    given = parser.parse_args()
    if not given.rooms and not given.planted:
        parser.print_help()
        return 0
    whole = given.rooms == ["all"]
    unknown = [name for name in given.rooms if name not in ROOMS and not whole]
    if unknown:
        parser.error(f"no room {unknown[0]}; there are: {', '.join(ROOMS)}")
    results = []
    try:
        for name in ROOMS if whole else given.rooms:
            results += _run(name, _list_trials(ROOMS[name], given), given.jobs)
        if given.planted or whole:
            results += _run(
                "planted", [Trial(build_planted(ROOT, entry), entry.tests) for entry in PLANTED], given.jobs
            )
    except BaselineError as error:
        print(error, file=sys.stderr)
        return 2
    if whole or len(given.rooms) + given.planted > 1:
        _print_score("all together", results)
    return int(any(result.verdict == "survived" for result in results))


def _run(name: str, trials: Sequence[Trial], jobs: int) -> list[Result]:
    results = []
    for result in try_mutants(trials, jobs) if trials else ():
        results.append(result)
        print(f"{result.verdict:<8}  {result.mutant}", flush=True)
    _print_score(name, results)
    return results


def _list_trials(room: Room, given: argparse.Namespace) -> list[Trial]:
    chosen = []
    for mutant in _list_mutants(room):
        equivalent = find_equivalent(mutant)
        if given.match in str(mutant) and equivalent is None:
            chosen.append(mutant)
        elif given.match in str(mutant) and equivalent is not None:
            print(f"left out  {mutant}: {equivalent.reason}")
    if 0 < given.sample < len(chosen):
        chosen = random.Random(1).sample(chosen, given.sample)
    return [Trial(mutant, room.tests) for mutant in chosen]


def _list_mutants(room: Room) -> list[Mutant]:
    return [mutant for file in room.files for mutant in list_mutants(file, (ROOT / file).read_text(encoding="utf-8"))]


def build_planted(root: Path, planted: Planted) -> Mutant:
    """Return a planted mistake as a mutant. ValueError if its text does not stand in the file exactly once."""
    source = (root / planted.file).read_text(encoding="utf-8")
    if source.count(planted.old) != 1:
        raise ValueError(f"{planted.file} holds {source.count(planted.old)} times {planted.old!r}")
    line = source[: source.index(planted.old)].count("\n") + 1
    changed = source.replace(planted.old, planted.new)
    return Mutant(planted.file, line, planted.old, f"{planted.new}  ({planted.name})", changed)


def _print_score(name: str, results: list[Result]) -> None:
    survivors = [result.mutant for result in results if result.verdict == "survived"]
    killed = len(results) - len(survivors)
    share = killed / len(results) if results else 1.0
    print(f"{name}: {killed} of {len(results)} killed ({share:.1%})")
    for mutant in survivors:
        print(f"  survived  {mutant}")


if __name__ == "__main__":
    sys.exit(main())
