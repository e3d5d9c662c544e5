"""Compare the step predicted for another number of workers with the measured step, on a grid of competing loops.

    python benchmarks/loader_grid.py [--whole] [--steps 120] [--keep FOLDER] [--json PATH]
    python benchmarks/loader_grid.py --seed 7 --batch-ms 24 --step-ms 12 --ratios 0.3 3 --others 0 0.7

Each cell is a real training process with a real DataLoader. Cells differ in cores (by affinity), workers, other
programs on the same cores, computing against waiting, and the spread of sample lengths. From the recording of each
cell, the model that the pages use predicts the step of every other number of workers. Prints per group of cells: the
median and the 90th percentile of the error, and how often the measured step lies in the range that would be shown.

Takes 8 minutes, 25 with `--whole`; nothing else may run. The second command draws other lengths: cells for which nobody
has tuned the model. `--keep` keeps the recordings of one set of lengths.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

SAMPLES = 4
LENGTHS = (0.4, 0.7, 1.0, 1.9)
"""Lengths of varying samples, as multiples of the mean."""
STRANGER = "import time\nwhile True:\n    end = time.thread_time() + {busy}\n    while time.thread_time() < end: pass\n    time.sleep({idle})\n"


@dataclass(frozen=True)
class Cell:
    """One loop. `ratio` is processor time over waiting in a batch, `others` the number of cores that another program
    demands."""

    cores: int
    workers: int
    others: float
    ratio: float
    varying: bool

    @property
    def host(self) -> Cell:
        """Return the same loop without its number of workers."""
        return replace(self, workers=0)


@dataclass(frozen=True)
class Times:
    """The lengths of a loop. Half of a step is on a processor, the other half sleeps as if on a device. `seed` draws
    the lengths of samples."""

    steps: int = 120
    batch_ms: float = 16.0
    step_ms: float = 8.0
    seed: int = 0


@dataclass(frozen=True)
class Predicted:
    """The step of another cell, ms: as predicted from the recording of `source` with its range, and as measured.
    `is_shown` means that pages would show the prediction as a gain."""

    source: Cell
    workers: int
    step_ms: float
    low_ms: float
    high_ms: float
    is_shown: bool
    measured_ms: float

    @property
    def error(self) -> float:
        return abs(self.step_ms / self.measured_ms - 1.0)

    @property
    def is_covered(self) -> bool:
        return self.low_ms <= self.measured_ms <= self.high_ms


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Samples:
    """A data set whose samples compute and wait. The same index always takes the same time."""

    def __init__(self, cell: Cell, times: Times) -> None:
        self.cell, self.times = cell, times

    def __len__(self) -> int:
        return SAMPLES * self.times.steps

    def __getitem__(self, index: int) -> int:
        drawn = random.Random(index if not self.times.seed else self.times.seed * 1_000_003 + index)
        scale = drawn.choice(LENGTHS) if self.cell.varying else 1.0
        whole_s = scale * self.times.batch_ms / SAMPLES / 1e3
        computing = self.cell.ratio / (1.0 + self.cell.ratio)
        burn(whole_s * computing)
        time.sleep(whole_s * (1.0 - computing))
        return index


def train(cell: Cell, folder: Path, times: Times) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: cell.cores])
    import torch

    from stepscope import Profiler

    torch.set_num_threads(1)
    model, profiler = torch.nn.Linear(4, 1), Profiler(folder, window=None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(Samples(cell, times), batch_size=SAMPLES, num_workers=cell.workers)
    for batch in loader:
        optimizer.zero_grad()
        loss = model(torch.ones(SAMPLES, 4) * batch[:, None]).mean()
        burn(times.step_ms / 2e3)
        time.sleep(times.step_ms / 2e3)
        loss.backward()
        optimizer.step()
    profiler.analyse()


@contextmanager
def disturb(cell: Cell) -> Iterator[None]:
    """Run another program that demands `others` cores on the cell's cores."""
    if not cell.others:
        yield
        return
    slot_s = 0.02
    text = STRANGER.format(busy=slot_s * cell.others, idle=slot_s * (1.0 - cell.others))
    stranger = subprocess.Popen([sys.executable, "-c", text])
    os.sched_setaffinity(stranger.pid, sorted(os.sched_getaffinity(0))[: cell.cores])
    try:
        yield
    finally:
        stranger.kill()
        stranger.wait()


def record(cell: Cell, folder: Path, times: Times) -> None:
    words = [__file__, "--train", json.dumps([asdict(cell), asdict(times)]), "--folder", str(folder)]
    with disturb(cell):
        subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True, timeout=300)


def predict(cell: Cell, folder: Path, measured_ms: dict[Cell, float]) -> Iterator[Predicted]:
    """Predict the step of the other cells with the same loop from the recording of this cell."""
    from profiler_server.analysis.data.prediction import predict_step
    from profiler_server.diagnosis.measuring import measure_case
    from profiler_server.diagnosis.ranking import Fixed, make_claim
    from profiler_server.diagnosis.what_if import set_workers
    from profiler_server.facts.case import Finding, Rule
    from stepscope import open_run

    run = open_run(folder)
    case = measure_case(run, run.rank())
    if case is None:
        raise SystemExit(f"{cell} recorded no steps")
    rule = Rule("grid", knob="workers", effort="argument", judge=lambda _: None)
    loop = case.loading.loop
    for other, step_ms in measured_ms.items():
        if other.host != cell.host or other == cell:
            continue
        what_if = set_workers(case, other.workers)
        finding = Finding("", "", "", "", "", "", (), what_if=what_if, doubt_frac=0.1)
        claim = make_claim(case, rule, finding, Fixed(loop.model, case.steps.mean_ns, {}))
        predicted_ns = predict_step(loop, what_if.change(loop.model))
        shown = predicted_ns < 0.97 * case.steps.mean_ns
        step_ns = claim.step_ns if shown else predicted_ns
        yield Predicted(cell, other.workers, step_ns / 1e6, claim.low_ns / 1e6, claim.high_ns / 1e6, shown, step_ms)


def measure(folder: Path) -> float:
    from collector.format.steps import summarize_steps
    from stepscope import open_run

    duration = summarize_steps(open_run(folder).table("steps")).duration_ns
    if duration is None:
        raise SystemExit(f"{folder} holds no steps")
    return duration.mean / 1e6


def list_cells(whole: bool, ratios: tuple[float, ...], others: tuple[float, ...]) -> list[Cell]:
    workers = (0, 1, 2, 4, 8) if whole else (0, 1, 2, 4)
    kinds = (False, True) if whole else (True,)
    cells = itertools.product((1, 2), workers, others, ratios, kinds)
    return [Cell(*values) for values in cells if values[0] <= len(os.sched_getaffinity(0))]


def say(name: str, found: Iterable[Predicted]) -> None:
    rows = list(found)
    if not rows:
        return
    errors = np.array([row.error for row in rows])
    shown = [row for row in rows if row.is_shown]
    covered = f"{np.mean([row.is_covered for row in shown]):6.0%} of {len(shown)}" if shown else "–"
    print(f"{name:28} {len(rows):4}  {np.median(errors):6.1%}  {np.quantile(errors, 0.9):6.1%}  {covered}")


def report(found: list[Predicted]) -> None:
    print(f"{'predictions':28} {'n':>4}  {'median':>6}  {'p90':>6}  measured step in the range shown")
    say("all", found)
    for cores in (1, 2):
        say(f"{cores} core{'s' if cores > 1 else ''}", (row for row in found if row.source.cores == cores))
    for others in sorted({row.source.others for row in found}):
        say(f"others on {others:g} cores", (row for row in found if row.source.others == others))
    for ratio in sorted({row.source.ratio for row in found}):
        say(f"computing / waiting {ratio:g}", (row for row in found if row.source.ratio == ratio))
    say("contended", (row for row in found if is_contended(row)))
    say("from no workers", (row for row in found if not row.source.workers))
    say("to fewer workers", (row for row in found if row.workers < row.source.workers))
    say("shown as a gain", (row for row in found if row.is_shown))


def is_contended(row: Predicted) -> bool:
    """Return whether more processors are demanded than there are, before or after the change."""
    computing = row.source.ratio / (1.0 + row.source.ratio)
    asked = row.source.others + 0.5 + max(row.source.workers, row.workers) * computing
    return asked > row.source.cores


def keep_times(place: Path, times: Times) -> None:
    """Record the lengths of a folder's recordings. Exits if the folder holds recordings of other lengths."""
    place.mkdir(parents=True, exist_ok=True)
    note, told = place / "times.json", json.dumps(asdict(times))
    if note.exists() and note.read_text() != told:
        raise SystemExit(f"{place} holds recordings of {note.read_text()}; give another folder to --keep")
    note.write_text(told)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = Times()
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--steps", type=int, default=usual.steps)
    parser.add_argument(
        "--batch-ms", type=float, default=usual.batch_ms, help="making a batch, as long as nothing else runs"
    )
    parser.add_argument("--step-ms", type=float, default=usual.step_ms, help="a step that has its batch")
    parser.add_argument(
        "--seed", type=int, default=usual.seed, help="of the lengths of samples and the order of the cells"
    )
    parser.add_argument(
        "--ratios", type=float, nargs="+", default=[0.1, 1.0, 10.0], help="computing over waiting of a batch"
    )
    parser.add_argument(
        "--others", type=float, nargs="+", default=[0.0, 0.5, 1.0], help="cores that another program asks for"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="keep the recordings there; those that are there are not made again")
    parser.add_argument("--train", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = read_options()
    if options.train:
        cell, times = json.loads(options.train)
        train(Cell(**cell), options.folder, Times(**times))
        return
    times = Times(options.steps, options.batch_ms, options.step_ms, options.seed)
    cells = list_cells(options.whole, tuple(options.ratios), tuple(options.others))
    random.Random(times.seed).shuffle(cells)  # a change of the machine's speed must not fall on one group
    with tempfile.TemporaryDirectory() as temporary:
        place = options.keep or Path(temporary)
        keep_times(place, times)
        folders = {cell: place / "-".join(map(str, asdict(cell).values())) for cell in cells}
        for number, (cell, folder) in enumerate(folders.items()):
            if not folder.exists():
                record(cell, folder, times)
            if number % 20 == 19:
                print(f"{number + 1} of {len(cells)} cells", file=sys.stderr, flush=True)
        measured_ms = {cell: measure(folder) for cell, folder in folders.items()}
        found = [row for cell, folder in folders.items() for row in predict(cell, folder, measured_ms)]
    report(found)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in found], indent=1))


if __name__ == "__main__":
    main()
