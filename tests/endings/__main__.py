"""End trainings in every way, bare and recorded by turns, and compare what a user sees of it.

python -m tests.endings --kind ddp-tutorial --way return --load busy --ranks 3 --times 10
python -m tests.endings --load idle --budget 60 --seed 1 --table endings.md --json endings.json

Exits with 1 if any cell differs. docs/concepts/testing.md says what is compared.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.endings.cells import KINDS, LOADS, WAYS, Cell, Choice, list_cells
from tests.endings.comparison import Result
from tests.endings.series import run_cells
from tests.endings.tables import encode_results, render_line, render_table


def main(arguments: Sequence[str]) -> int:
    given = _parse(arguments)
    choice = Choice(tuple(given.kind), tuple(given.way), tuple(given.load), tuple(given.door), tuple(given.ranks))
    cells = list(list_cells(choice))
    if given.list:
        print(*(cell.name for cell in cells), f"{len(cells)} cells", sep="\n")
        return 0
    results: list[Result] = []
    for result in run_cells(cells, given.times, given.budget * 60, given.seed, given.limit):
        results.append(result)
        print(render_line(result), flush=True)
        _keep_stacks(result, given.stacks)
        _write(results, given)
    print(summarize(results, cells, given.seed))
    return 1 if any(one.differences for one in results) else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.endings", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _add_names(parser, "--kind", [one.name for one in KINDS])
    _add_names(parser, "--way", [one.name for one in WAYS])
    _add_names(parser, "--load", LOADS)
    _add_names(parser, "--door", ("run", "script"))
    parser.add_argument("--ranks", type=int, nargs="+", choices=(2, 3, 4), default=[2], help="of kinds that have ranks")
    parser.add_argument("--times", type=int, default=1, help="trials of each cell, bare and as many recorded")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds from the last step to the end")
    parser.add_argument("--budget", type=float, default=float("inf"), help="minutes; the cells are drawn by the seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", type=Path, help="file for a table in Markdown")
    parser.add_argument("--json", type=Path, help="file for all trials")
    parser.add_argument(
        "--stacks", type=Path, default=Path("endings-stacks"), help="folder for the stacks of jobs that hang"
    )
    parser.add_argument("--list", action="store_true", help="name the cells only")
    return parser.parse_args(arguments)


def _add_names(parser: argparse.ArgumentParser, option: str, names: Sequence[str]) -> None:
    parser.add_argument(option, nargs="+", default=[], choices=names, metavar="NAME", help=", ".join(names))


def _keep_stacks(result: Result, folder: Path) -> None:
    for number, trial in enumerate((*result.bare, *result.recorded)):
        if trial.stacks:
            folder.mkdir(parents=True, exist_ok=True)
            name = result.cell.name.replace(" / ", "-").replace(" ", "-").replace("/", "-")
            path = folder / f"{name}-{number}-{trial.door}.txt"
            path.write_text(f"{trial.stacks}\n\nstdout:\n{trial.out}\n\nstderr:\n{trial.err}", "utf-8")
            print(f"  its stacks are in {path}", flush=True)


def _write(results: Sequence[Result], given: argparse.Namespace) -> None:
    if given.table is not None:
        given.table.write_text(render_table(results), "utf-8")
    if given.json is not None:
        given.json.write_text(encode_results(results), "utf-8")


def summarize(results: Sequence[Result], cells: Sequence[Cell], seed: int) -> str:
    """Say how many cells were tried, which of them by what seed, and how many differ."""
    differ = sum(bool(one.differences) for one in results)
    drawn = "" if len(results) == len(cells) else f", drawn by seed {seed}"
    return f"{len(results)} of {len(cells)} cells{drawn}: {differ} differ"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
