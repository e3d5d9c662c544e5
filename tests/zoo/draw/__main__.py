"""`python -m tests.zoo.draw --seed S --count N --healthy M --out DIR`: write drawn programs and what is planted in them.

Programs go to `DIR/programs`, what is known of them to `DIR/cases.json`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from tests.zoo.draw.choosing import draw_programs


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.zoo.draw")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=60, help="programs with a planted cause")
    parser.add_argument("--healthy", type=int, default=25)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    drawn = draw_programs(given.seed, given.count, given.healthy)
    programs = given.out / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    for one in drawn:
        (programs / f"{one.script}.py").write_text(one.text, "utf-8")
    known = [{name: value for name, value in asdict(one).items() if name != "text"} for one in drawn]
    (given.out / "cases.json").write_text(json.dumps({"seed": given.seed, "cases": known}, indent=1), "utf-8")
    causes = sorted({one.cause for one in drawn if one.cause})
    print(f"{len(drawn)} programs in {programs}; causes: {', '.join(causes)}")


if __name__ == "__main__":
    main()
