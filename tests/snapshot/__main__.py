"""Show that nothing a user sees has changed: record runs once, take all that is seen of them twice, and compare.

python -m tests.snapshot record RUNS --traces DIR   fill a folder with runs; what is there already stays
python -m tests.snapshot take RUNS OUT              write one JSON file for each folder of RUNS
python -m tests.snapshot compare A B --expect FILE  exit 1 if anything differs but what FILE expects

A line of FILE is a pattern for lines that `compare` prints, # and the reason; one that fits none of them is named.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from pkgutil import walk_packages

from tests.snapshot.apart import DONE, Task, run_apart


def main(arguments: Sequence[str]) -> int:
    given = _parse(arguments)
    if given.verb == "record":
        return record(given.runs, given.traces, given.only)
    if given.verb == "take":
        return take(given.runs, given.out, given.only)
    return compare(given.a, given.b, given.expect)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.snapshot", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("record", "take"):
        one = verbs.add_parser(verb)
        one.add_argument("runs", type=Path, metavar="RUNS")
        one.add_argument("--only", default="*", metavar="PATTERN", help="names of runs, such as 'case-*'")
        if verb == "take":
            one.add_argument("out", type=Path, metavar="OUT")
        else:
            one.add_argument(
                "--traces", type=Path, nargs="+", default=[], metavar="DIR", help="trace files, or folders"
            )
    one = verbs.add_parser("compare")
    one.add_argument("a", type=Path, metavar="A")
    one.add_argument("b", type=Path, metavar="B")
    one.add_argument("--expect", type=Path, metavar="FILE", help="lines that may differ")
    return parser.parse_args(arguments)


def record(runs: Path, traces: Sequence[Path], only: str) -> int:
    """Record what is not there yet; return 1 if something could not be."""
    from tests.snapshot.recipes import list_recipes, record_one

    names = [name for name in list_recipes(traces) if fnmatch(name, only) and not (runs / name / DONE).exists()]
    tasks: dict[str, Task] = {name: (record_one, (runs / name, tuple(traces))) for name in names}
    return _run(tasks, ["tests.snapshot.recipes"])


def take(runs: Path, out: Path, only: str) -> int:
    """Write what is seen of each folder of runs; return 1 if something could not be taken."""
    import profiler_server
    from tests.snapshot.still import hold_place
    from tests.snapshot.taking import take_one

    out.mkdir(parents=True, exist_ok=True)
    names = sorted(path.parent.name for path in runs.glob(f"*/{DONE}") if fnmatch(path.parent.name, only))
    server = [one.name for one in walk_packages(profiler_server.__path__, "profiler_server.") if "__" not in one.name]
    with hold_place() as root:
        return _run({name: (take_one, (runs / name, root, out)) for name in names}, ["tests.snapshot.taking", *server])


def _run(tasks: dict[str, Task], preloaded: Sequence[str]) -> int:
    begun_s, failed = time.monotonic(), 0
    for name, problem in run_apart(tasks, preloaded):
        failed += bool(problem)
        print(f"{name} {problem or 'done'}", flush=True)
    print(f"{len(tasks) - failed} of {len(tasks)} in {time.monotonic() - begun_s:.0f} s")
    return 1 if failed else 0


def compare(a: Path, b: Path, expect: Path | None) -> int:
    """Print what differs and is not expected, and expectations that did not come true; return 1 if there is any."""
    from tests.snapshot.comparing import find_changes, read_expectations, render_change

    changes = find_changes(a, b)
    expected = read_expectations(expect.read_text("utf-8")) if expect is not None else {}
    met = {pattern for change in changes for pattern in expected if change.fits(pattern)}
    left = [change for change in changes if not any(change.fits(pattern) for pattern in expected)]
    for change in left:
        print(render_change(change))
    for pattern in expected.keys() - met:
        print(f"expected, but does not differ: {pattern}")
    print(f"{len(left)} changes, {len(changes) - len(left)} more that were expected")
    return 1 if left or expected.keys() - met else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
