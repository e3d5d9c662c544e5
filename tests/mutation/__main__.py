"""The command: `python -m tests.mutation [--jobs N] [--sample N] ROOM…`, or `all`, or `planted`."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.mutation.mutants import Mutant, list_mutants
from tests.mutation.rooms import PLANTED, ROOMS, Planted, Room
from tests.mutation.running import ROOT, BaselineError, Result, try_mutants


def main() -> int:
    """Run the rooms; 1 if a mutant survived, 2 if a room cannot be tried."""
    parser = argparse.ArgumentParser("python -m tests.mutation", description=__doc__)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"all, planted, or some of: {', '.join(ROOMS)}")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time (default: 1)")
    parser.add_argument("--sample", type=int, default=0, help="at most so many of a room, chosen at random (seed 1)")
    parser.add_argument("--match", default="", metavar="TEXT", help="only mutants whose line of output holds this text")
    given = parser.parse_args()
    if not given.rooms:
        parser.print_help()
        return 0
    names = [*ROOMS, "planted"] if given.rooms == ["all"] else given.rooms
    unknown = [name for name in names if name not in ROOMS and name != "planted"]
    if unknown:
        parser.error(f"no room {unknown[0]}; there are: {', '.join(ROOMS)}, planted")
    try:
        results = [result for name in names for result in _run_room(name, given)]
    except BaselineError as error:
        print(error, file=sys.stderr)
        return 2
    if len(names) > 1:
        _print_score("all together", results)
    return int(any(result.verdict == "survived" for result in results))


def _run_room(name: str, given: argparse.Namespace) -> list[Result]:
    results = []
    for room, mutants in _list_planted() if name == "planted" else [(ROOMS[name], _list_mutants(ROOMS[name]))]:
        chosen = [mutant for mutant in mutants if given.match in str(mutant)]
        if 0 < given.sample < len(chosen):
            chosen = random.Random(1).sample(chosen, given.sample)
        for result in try_mutants(chosen, room.tests, given.jobs):
            results.append(result)
            print(f"{result.verdict:<8}  {result.mutant}", flush=True)
    _print_score(name, results)
    return results


def _list_mutants(room: Room) -> list[Mutant]:
    return [mutant for file in room.files for mutant in list_mutants(file, (ROOT / file).read_text(encoding="utf-8"))]


def _list_planted() -> Iterator[tuple[Room, list[Mutant]]]:
    for planted in PLANTED:
        room = next(room for room in ROOMS.values() if planted.file in room.files)
        yield room, [build_planted(ROOT, planted)]


def build_planted(root: Path, planted: Planted) -> Mutant:
    """Return a change by hand as a mutant. ValueError if its text does not stand in the file exactly once."""
    source = (root / planted.file).read_text(encoding="utf-8")
    if source.count(planted.old) != 1:
        raise ValueError(f"{planted.file} holds {source.count(planted.old)} times {planted.old!r}")
    line = source[: source.index(planted.old)].count("\n") + 1
    return Mutant(planted.file, line, planted.old, planted.new, source.replace(planted.old, planted.new))


def _print_score(name: str, results: list[Result]) -> None:
    survivors = [result.mutant for result in results if result.verdict == "survived"]
    killed = len(results) - len(survivors)
    share = killed / len(results) if results else 1.0
    print(f"{name}: {killed} of {len(results)} killed ({share:.1%})")
    for mutant in survivors:
        print(f"  survived  {mutant}")


if __name__ == "__main__":
    sys.exit(main())
