"""Run the campaign and say how many culprits were named, by size."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict

from tests.stragglers.planted import RANKS, Result, check_case, plan_cases


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stragglers", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="cases of each kind and size (20)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--most-ranks", type=int, default=max(RANKS), help="leave larger jobs out")
    given = parser.parse_args()
    sizes = tuple(size for size in RANKS if size <= given.most_ranks)
    results = [
        check_case(plan) for seed in range(given.first, given.first + given.seeds) for plan in plan_cases(seed, sizes)
    ]
    for result in results:
        if not result.is_right:
            print(f"wrong: {result.said}; {result.plan}")
    return _report(results)


def _report(results: list[Result]) -> int:
    kinds: dict[tuple[str, int], list[Result]] = defaultdict(list)
    for result in results:
        kind = "fixed" if result.plan.slow else "by turns" if result.plan.takes_turns else "even"
        kinds[kind, result.plan.ranks].append(result)
    for (kind, ranks), found in sorted(kinds.items()):
        ratios = [abs(result.slowdown_ratio - 1) for result in found if result.slowdown_ratio is not None]
        right = sum(result.is_right for result in found)
        print(
            f"{kind:9} {ranks:5} ranks: {right} of {len(found)} right, slowdown off by {max(ratios, default=0):.2%} at most"
        )
    right = sum(result.is_right for result in results)
    print(f"{right} of {len(results)} right ({right / len(results):.2%})")
    return 0 if right >= 0.99 * len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
