"""How often the gate calls a program slower than itself, and how often it finds a slowdown, on real recordings.

    python benchmarks/gate_pairs.py [--runs 60] [--minutes 8] [--draws 400] [--keep DIR]

Records a small training on the CPU again and again, each time in a new process by `stepscope run` with its usual options.
The order is a b b a a b b a …: `b` does 21 pieces of work in a step where `a` does 20. Then it draws sets of
recordings, and runs the gate on each set:

- single pairs of one program, judged by the scatter of eight other runs of the program;
- five pairs in a row, each of neighbours in time of one program, in an order drawn by lot as `stepscope run --pairs` does;
- five runs of one program against five others, in any order;
- five pairs in a row of a and b, where the slowdown is real;
- five pairs of one program, with the steps of one side multiplied.

Each share is printed with its 95 % interval for independent draws. The draws share recordings, so the true interval is
wider. Two more figures show this: the share over all pairs in a row and all possible orders, and the number of sets
without a common recording. With `--keep` the runs stay in DIR, and runs that are already there count.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

from collector.format.run import open_run
from profiler_server.analysis.compare.gate import judge
from profiler_server.analysis.compare.run_times import RunTimes, read_times

SCRIPT = """
import sys
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
pieces, steps = int(sys.argv[1]), int(sys.argv[2])
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(16 * steps, 256), torch.randint(0, 10, (16 * steps,)))
for images, labels in torch.utils.data.DataLoader(data, batch_size=16):
    optimizer.zero_grad()
    for _ in range(pieces):
        nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
"""
PIECES = {"a": 20, "b": 21}
PAIRS = 5
LIKE = 8
LEAST_RUNS = 24
Pair = tuple[RunTimes, RunTimes]


def record(folder: Path, runs: int, steps: int, limit_s: float) -> None:
    """Record runs in the order a b b a until the folder holds enough runs, or the time is over."""
    script, begun = folder / "train.py", time.monotonic()
    script.write_text(SCRIPT, encoding="utf-8")
    environment = {**os.environ, "PROFILER_VERDICT": "0"}
    for number in range(len(list(folder.glob("[ab]-*"))), runs):
        if time.monotonic() - begun > limit_s:
            print(f"the time is over after {number} runs", flush=True)
            return
        name = "abba"[number % 4]
        words = [f"--output={folder / f'{name}-{number:03}'}", str(script), str(PIECES[name]), str(steps)]
        subprocess.run(
            [sys.executable, "-m", "collector.launch", *words],
            check=True,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )


def read_runs(folder: Path) -> list[RunTimes]:
    paths = sorted(folder.glob("[ab]-*"), key=lambda path: path.name.partition("-")[2])
    return [read_times(open_run(path)) for path in paths]


def find_neighbours(runs: Sequence[RunTimes]) -> tuple[list[Pair], list[Pair]]:
    """Return two lists of pairs of neighbours in time: pairs of one program, and pairs of both programs with `a` first.
    Each run is in one pair of a list."""
    same = [pair for pair in zip(runs[1::2], runs[2::2], strict=False) if pair[0].name[0] == pair[1].name[0]]
    both = [(x, y) if x.name[0] == "a" else (y, x) for x, y in zip(runs[::2], runs[1::2], strict=False)]
    return same, both


class Drawing:
    """Draws sets of recordings for the gate, and counts the gate's verdicts."""

    def __init__(self, runs: Sequence[RunTimes], draws: int, seed: int) -> None:
        self.runs, self.draws, self.random = runs, draws, random.Random(seed)
        self.same, self.both = find_neighbours(runs)

    def count(self, title: str, draw: Callable[[], str], wanted: str) -> None:
        kinds = Counter(draw() for _ in range(self.draws))
        found = kinds["slower"]
        interval = binomtest(found, self.draws).proportion_ci(0.95)
        print(
            f"{title:<58}{100 * found / self.draws:>6.1f} %  ({100 * interval.low:.1f} to {100 * interval.high:.1f})"
            f"  undecided {100 * kinds['unknown'] / self.draws:.1f} %  {wanted}",
            flush=True,
        )

    def judge_single(self) -> str:
        name = self.random.choice("ab")
        runs = [run for run in self.runs if run.name[0] == name]
        base, new, *like = self.random.sample(runs, LIKE + 2)
        return judge([base], [new], like=like).kind

    def judge_lists(self) -> str:
        name = self.random.choice("ab")
        drawn = self.random.sample([run for run in self.runs if run.name[0] == name], 2 * PAIRS)
        return judge(drawn[:PAIRS], drawn[PAIRS:]).kind

    def judge_same(self, factor: float = 1.0, pairs: int = PAIRS) -> str:
        return judge_in_order(self._draw_row(self.same, pairs), self._draw_order(pairs), factor)

    def judge_both(self) -> str:
        pairs = self._draw_row(self.both, PAIRS)
        return judge([a for a, _ in pairs], [b for _, b in pairs]).kind

    def _draw_row(self, pairs: Sequence[Pair], count: int) -> Sequence[Pair]:
        begin = self.random.randrange(len(pairs) - count + 1)
        return pairs[begin : begin + count]

    def _draw_order(self, pairs: int) -> Sequence[bool]:
        return self.random.choice(list_orders(pairs))

    def count_all(self) -> tuple[float, int]:
        """Return the share of false alarms over all pairs in a row and all orders, and the number of sets without a
        common run."""
        begins = range(len(self.same) - PAIRS + 1)
        kinds = [
            judge_in_order(self.same[begin : begin + PAIRS], order) for begin in begins for order in list_orders(PAIRS)
        ]
        return kinds.count("slower") / len(kinds), len(self.same) // PAIRS


def list_orders(pairs: int) -> list[tuple[bool, ...]]:
    """Return every order that `stepscope run` can draw: for each pair whether the base comes first, not the same in all
    pairs."""
    return [order for order in product((True, False), repeat=pairs) if len(set(order)) > 1]


def judge_in_order(pairs: Sequence[Pair], order: Sequence[bool], factor: float = 1.0) -> str:
    """Judge pairs of one program. `order` says for each pair whether its first run counts as the base or as the new
    version."""
    drawn = [pair if is_base_first else pair[::-1] for pair, is_base_first in zip(pairs, order, strict=True)]
    return judge([base for base, _ in drawn], [_slow(new, factor) for _, new in drawn]).kind


def _slow(run: RunTimes, factor: float) -> RunTimes:
    parts = {name: factor * value for name, value in run.parts_ns.items()}
    return replace(run, steps_ns=factor * run.steps_ns, parts_ns=parts)


def describe(runs: Sequence[RunTimes], drawing: Drawing) -> None:
    medians = {name: np.array([np.median(run.steps_ns) for run in runs if run.name[0] == name]) for name in "ab"}
    scatter = np.mean([np.log(values).std(ddof=1) for values in medians.values()])
    ratios = np.array([np.log(np.median(y.steps_ns) / np.median(x.steps_ns)) for x, y in drawing.same])
    centred = ratios - ratios.mean()
    follows = float((centred[1:] * centred[:-1]).sum() / (centred**2).sum())
    loads = [run.others_cores for run in runs if run.others_cores is not None]
    print(
        f"{len(runs)} recordings of {np.mean([len(run.steps_ns) for run in runs]):.0f} steps, median "
        f"{np.median(medians['a']) / 1e6:.1f} ms (a), {np.median(medians['b']) / 1e6:.1f} ms (b: "
        f"{100 * (np.median(medians['b']) / np.median(medians['a']) - 1):+.1f} %); scatter from run to run "
        f"{100 * scatter:.2f} %, of neighbours {100 * np.std(ratios, ddof=1) / np.sqrt(2):.2f} %, correlation of a "
        f"pair with the next {follows:+.2f}, kurtosis {float((centred**4).mean() / (centred**2).mean() ** 2):.1f}; other programs used "
        f"{np.mean(loads) if loads else float('nan'):.2f} cores",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        record(folder, given.runs, given.steps, 60.0 * given.minutes)
        runs = read_runs(folder)
    if len(runs) < LEAST_RUNS:
        sys.exit(f"{len(runs)} recordings are too few to draw from; at least {LEAST_RUNS} are needed")
    drawing = Drawing(runs, given.draws, given.seed)
    describe(runs, drawing)
    print(f"called slower, of {given.draws} draws (95 % interval)")
    drawing.count("one pair of one program, by the scatter of 8 others", drawing.judge_single, "at most 5 %")
    drawing.count("5 runs of one program against 5 others", drawing.judge_lists, "at most 5 %")
    drawing.count("3 pairs of neighbours of one program", lambda: drawing.judge_same(pairs=3), "at most 5 %")
    drawing.count("5 pairs of neighbours of one program", drawing.judge_same, "at most 5 %")
    share, sets = drawing.count_all()
    print(f"  over all rows and orders {100 * share:.1f} %; {sets} sets of 5 pairs have no recording in common")
    drawing.count(
        "5 pairs of neighbours, b does 21 pieces for 20", drawing.judge_both, "at least 95 % if scatter allows"
    )
    drawing.count("5 pairs of one program, steps times 1.05", lambda: drawing.judge_same(1.05), "the same")
    drawing.count("5 pairs of one program, steps times 1.03", lambda: drawing.judge_same(1.03), "")


if __name__ == "__main__":
    main()
