"""`python -m tests.zoo.score --drawn DIR …`: record and judge drawn programs."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.zoo.scoring.outcome import Known, Outcome, record_round
from tests.zoo.scoring.recording import Recorder
from tests.zoo.scoring.table import as_json, make_score, print_outcome, print_peers, print_score
from tests.zoo.scoring.traceml import NAME, ask_traceml


def score_drawn(arguments: Sequence[str]) -> None:
    given = _parse(arguments)
    cases = json.loads((given.drawn / "cases.json").read_text("utf-8"))
    known = [Known.read(entry) for entry in cases["cases"]]
    known = [one for one in known if not given.scripts or one.script in given.scripts or one.cause in given.scripts]
    print(
        f"{len(known)} programs of seed {cases['seed']}, {given.rounds} round(s) each; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        recorder = Recorder(given.drawn.absolute() / "programs", (given.keep or Path(scratch)).absolute(), given.steps)
        outcomes = []
        for one in known:
            outcomes.append(Outcome(one, tuple(record_round(recorder, one, n) for n in range(given.rounds))))
            print_outcome(outcomes[-1])
        score = make_score(outcomes)
        print_score(score)
        result = as_json(outcomes, score)
        if given.peers:
            result["peers"] = print_peers(outcomes, _ask(given, outcomes, recorder.keep))
    minutes = (time.monotonic() - began) / 60
    print(f"load of the host at the end {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores; {minutes:.0f} min")
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=1), "utf-8")


def _ask(given: argparse.Namespace, outcomes: Sequence[Outcome], keep: Path) -> dict[str, dict[str, str]]:
    if given.traceml is None:
        return {}
    programs = given.drawn.absolute() / "traceml"
    scripts = [outcome.known.script for outcome in outcomes]
    return {NAME: {s: ask_traceml(programs / f"{s}.py", given.traceml, keep / s / "traceml") for s in scripts}}


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.zoo.score")
    parser.add_argument("--drawn", type=Path, required=True, help="folder that python -m tests.zoo.draw wrote")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep recordings here, and use those that are here already")
    parser.add_argument("--json", type=Path, help="write the score and all figures to this file")
    parser.add_argument("--peers", action="store_true", help="judge by the published thresholds of other tools too")
    parser.add_argument("--traceml", type=Path, help="with --peers: folder that holds TraceML, which is run too")
    parser.add_argument("--steps", type=int, help="updates of each program, where not its own number")
    parser.add_argument("scripts", nargs="*", help="names of programs, or of causes; all where none is given")
    return parser.parse_args(arguments)
