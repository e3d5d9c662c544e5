"""`python -m tests.zoo.draw --seed S --count N --healthy M --out DIR`: write drawn programs and what is planted in them.

Programs go to `DIR/programs`, what is known of them to `DIR/cases.json`; with --traceml the same programs with the lines
that this tool asks for go to `DIR/traceml`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from tests.zoo.draw.choosing import draw_programs


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.zoo.draw")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=60, help="programs with a planted cause")
    parser.add_argument("--healthy", type=int, default=25)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--traceml", action="store_true", help="write each program for that tool, too")
    given = parser.parse_args()
    drawn = draw_programs(given.seed, given.count, given.healthy)
    programs = given.out / "programs"
    _write(programs, {one.script: one.text for one in drawn})
    if given.traceml:
        _write(given.out / "traceml", {one.script: one.traced for one in drawn})
    known = [{name: value for name, value in asdict(one).items() if name not in ("text", "traced")} for one in drawn]
    (given.out / "cases.json").write_text(json.dumps({"seed": given.seed, "cases": known}, indent=1), "utf-8")
    causes = sorted({one.cause for one in drawn if one.cause})
    print(f"{len(drawn)} programs in {programs}; causes: {', '.join(causes)}")


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
