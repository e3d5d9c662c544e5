"""How often is the diagnosis right? `python -m tests.zoo.score --drawn DIR [script …]`.

The programs are those that `python -m tests.zoo.draw` wrote. Each is recorded as it stands, twice, with the change that
its first right suggestion asks for (the same number of workers, the same threads), and with `--fixed`, so that a change
of the host's load meets all of them. The analyser sees what the collector wrote and nothing else. Printed: whether the
first (and any of the first three) suggestions name the cause, whether healthy runs stay silent, the predicted step
against the one measured after the change, whether a plant is valid (fixing it gains at least 15 % and three times the
spread of the base), and the totals.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

from tests.zoo.scoring.outcome import Known, Outcome, record_round
from tests.zoo.scoring.recording import Recorder
from tests.zoo.scoring.table import make_score, print_outcome, print_score


def main() -> None:
    given = _parse()
    cases = json.loads((given.drawn / "cases.json").read_text("utf-8"))
    known = [Known.read(entry) for entry in cases["cases"]]
    known = [one for one in known if not given.scripts or one.script in given.scripts or one.cause in given.scripts]
    print(f"{len(known)} programs of seed {cases['seed']}, {given.rounds} round(s) each; load {os.getloadavg()[0]:.1f}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        recorder = Recorder(given.drawn.absolute() / "programs", (given.keep or Path(scratch)).absolute(), given.steps)
        outcomes = []
        for one in known:
            outcomes.append(Outcome(one, tuple(record_round(recorder, one, n) for n in range(given.rounds))))
            print_outcome(outcomes[-1])
        print_score(make_score(outcomes))
    minutes = (time.monotonic() - began) / 60
    print(f"load of the host at the end {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores; {minutes:.0f} min")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.zoo.score")
    parser.add_argument("--drawn", type=Path, required=True, help="folder that python -m tests.zoo.draw wrote")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep recordings here, and use those that are here already")
    parser.add_argument("--steps", type=int, help="updates of each program, where not its own number")
    parser.add_argument("scripts", nargs="*", help="names of programs, or of causes; all where none is given")
    return parser.parse_args()


if __name__ == "__main__":
    main()
