"""Record pairs of runs of two versions of a program, each pair in random order, and ask for the gate's verdict.

The server computes the verdict, in a process of its own. The base's code is in a checkout of its own. Everything else
is the same for both sides: the current folder, the arguments, the environment. So both sides find the same input at
relative paths, tracked by git or not. Files that git does not track are missing next to the base's code.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from collector import server
from collector.edge import say
from collector.ending import SIGNALLED, unwind_at_signals
from collector.environment import DEFAULT_PATH
from collector.expendable import build_environment
from collector.format.schema.errors import OutputError, RunError, UsageError
from collector.format.schema.removal import Made, make_run_folder, remove_empty, remove_tree
from collector.format.schema.wording import format_number_of
from collector.launch.children import LOG_FILE, make_printable, read_log_end, refuse_output, start_recording
from collector.launch.pairs.checkout import (
    BASE,
    NEW,
    Checkout,
    Placed,
    find_script,
    open_base,
    place_environment,
    place_words,
    read_borrowed,
)
from collector.launch.script import Program
from collector.storage.urls import is_url

USUAL_PAIRS = 5
CANNOT_TELL = 2
LOG_LINES = 20
PATIENCE_S = 10.0
"""How long a script has to end after the first signal, before it is killed."""


class Failed(Exception):
    """The pairs cannot be judged; the message is the reason."""


@dataclass(frozen=True)
class Measured:
    """The number of all steps of a run, the median of its steady steps in ns, and the word for a step or batch."""

    steps: int
    median_ns: float
    noun: str


@dataclass(frozen=True)
class Pairs:
    """The settings of a comparison of `count` pairs. `against` is a git revision or a folder; `output` None means a new
    folder for the runs. `options` is JSON for the Profiler. `max_slowdown`, `junit` and `markdown` are for the gate.
    """

    program: Program
    count: int
    against: str
    output: str | None = None
    options: str | None = None
    max_slowdown: str | None = None
    junit: Path | None = None
    markdown: Path | None = None


@dataclass(frozen=True)
class Side:
    name: str
    words: tuple[str, ...]
    environment: dict[str, str]


def run_pairs(pairs: Pairs) -> int:
    """Record the pairs and print the verdict. Return 0 for not slower, 1 for slower, 2 for unknown, with the reason on
    stderr.

    Raises UsageError or OutputError if nothing can be recorded.
    """
    _check_gate(pairs)
    script = find_script(pairs.program)
    output = _make_output(pairs.output)
    try:
        with unwind_at_signals(), open_base(pairs.against, script.path) as base:
            return _compare(pairs, base, script, output)
    except Failed as error:
        say(f"cannot tell: {error}")
        _write_undecided(pairs, f"Cannot tell: {error}")
        return CANNOT_TELL
    except KeyboardInterrupt:
        say("broken off")
        return SIGNALLED + signal.SIGINT
    finally:
        _leave_output(output)


def _compare(pairs: Pairs, base: Checkout, script: Placed, output: Path) -> int:
    sides = _build_sides(pairs.program, base, script)
    say(
        f"{format_number_of(pairs.count, 'pair')}: base is {base.label}, new is {base.describe_tree()}; "
        f"the runs go to {output}"
    )
    written = (output, *(path.expanduser() for path in (pairs.junit, pairs.markdown) if path is not None))
    least = server.read_least_pairs()
    if pairs.count < least:
        say(f"fewer than {least} pairs get no verdict: the exit code will be {CANNOT_TELL}")
    for note in base.list_notes(written):
        say(note)
    before, begun = base.read_state(), time.monotonic()
    order = [side for is_base_first in draw_order(pairs.count) for side in (sides if is_base_first else sides[::-1])]
    for number, side in enumerate(order):
        folder = output / side.name / f"{side.name}-{number // 2 + 1}"
        measured = _record(pairs, side, folder, base)
        left_s = (time.monotonic() - begun) / (number + 1) * (len(order) - number - 1)
        _tell_progress(f"run {number + 1} of {len(order)}, {folder.name}", measured, left_s)
    if base.read_state() != before:
        raise Failed(f"Python files of {base.root} changed while the pairs were recorded; leave them alone meanwhile")
    return _judge(output, pairs)


def draw_order(pairs: int) -> list[bool]:
    """Return for each pair whether the base runs first: at random, but not the same in all pairs if there are several.

    Drift, warm-up and changing load on the host then affect either side by chance alone, so the chance of a false alarm
    is known. A fixed alternation would be less fair, because a periodic load may match its rhythm.
    """
    lot = random.SystemRandom()  # no seed that a user sets decides it
    while True:
        drawn = [lot.random() < 0.5 for _ in range(pairs)]
        if len(set(drawn)) == min(pairs, 2):
            return drawn


def _build_sides(program: Program, base: Checkout, script: Placed) -> tuple[Side, Side]:
    environment = {**os.environ, "PROFILER_VERDICT": "0"}
    words = place_words(program, script, base)
    return (
        Side(BASE, tuple(words), place_environment(environment, script, base)),
        Side(NEW, tuple(program.words), environment),
    )


def _record(pairs: Pairs, side: Side, folder: Path, base: Checkout) -> Measured:
    """Record one run of a side and measure it. If that fails, remove the run and raise Failed with the reason."""
    with _removed_at_failure(folder):
        # In a session of its own, so that a Ctrl-C comes from here, once, and whatever it started can be ended.
        process = start_recording(folder, pairs.options, side.words, side.environment, own_session=True)
        try:
            code = process.wait()
        except BaseException as error:
            _end(process, signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM)
            raise
        if code:
            tail = "\n".join(f"  {make_printable(line)}" for line in read_log_end(folder / LOG_FILE)[-LOG_LINES:])
            how = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
            raise Failed(f"the script failed as {side.name} ({how}); the end of what it printed:\n{tail}")
        measured = _measure(folder)
        if borrowed := read_borrowed(side.environment):
            raise Failed(
                f"the base ran code of {base.root} instead of its own: {borrowed}. Install each version in an environment "
                "of its own, record both with `stepscope run -o`, and use `stepscope compare --gate`"
            )
    return measured


@contextmanager
def _removed_at_failure(folder: Path) -> Iterator[None]:
    made = make_run_folder(folder)
    try:
        yield
    except BaseException:
        _remove(folder, made)
        raise


def _measure(folder: Path) -> Measured:
    from collector.format.rank import read_step_rows
    from collector.format.run import open_run
    from collector.format.steps import summarize_steps

    try:
        rows = read_step_rows(open_run(folder).rank())
    except RunError as error:
        raise Failed(
            f"{folder.name} recorded nothing that can be compared: {error}. A script that makes a Profiler of its own must "
            "leave its path to `stepscope run`: Profiler()"
        ) from None
    found = summarize_steps(rows.steps)
    if found.duration_ns is None:
        raise Failed(f"{folder.name} recorded no step")
    return Measured(found.count, found.duration_ns.p50, rows.noun)


def _end(process: subprocess.Popen[bytes], first: signal.Signals) -> None:
    process.send_signal(first)
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            process.wait(PATIENCE_S)
            break
        except subprocess.TimeoutExpired:
            with suppress(OSError):
                os.killpg(process.pid, number)
    process.wait()
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)  # child processes that outlived it, such as workers


def _remove(folder: Path, made: Made) -> None:
    """Remove the folder of a run. Try again for some seconds, because its recorder process may still write files."""
    deadline = time.monotonic() + PATIENCE_S
    while folder.exists() and time.monotonic() < deadline:
        with suppress(OSError):  # the folder may not be empty
            remove_tree(folder, made)
        time.sleep(0.05)


def _tell_progress(title: str, measured: Measured, left_s: float) -> None:
    left = f"; about {server.format_duration(left_s * 1e9)} left" if left_s else ""
    median = server.format_duration(measured.median_ns)
    say(f"{title}: {format_number_of(measured.steps, measured.noun)}, median {median}{left}")


def _judge(output: Path, pairs: Pairs) -> int:
    new, base = ([str(path) for path in sorted((output / name).iterdir())] for name in (NEW, BASE))
    given = {"max-slowdown": pairs.max_slowdown, "junit": pairs.junit, "markdown": pairs.markdown}
    extra = [
        f"--{name}={value.expanduser().absolute() if isinstance(value, Path) else value}"
        for name, value in given.items()
        if value is not None
    ]
    words = ["compare", *new, "--against", *base, "--gate", *extra]
    done = subprocess.run(
        [sys.executable, "-m", server.SERVER, *words],
        stdin=subprocess.DEVNULL,
        cwd="/",  # a file of the user's in the current folder must not shadow a module
        env=build_environment(),
    )
    return done.returncode if done.returncode in (0, 1) else CANNOT_TELL


def _write_undecided(pairs: Pairs, reason: str) -> None:
    """Write the reason for a missing verdict to the requested files; stderr has it already."""
    junit, markdown = (path and path.expanduser().absolute() for path in (pairs.junit, pairs.markdown))
    try:
        server.write_undecided(reason, junit, markdown)
    except OutputError as error:
        say(str(error))


def _check_gate(pairs: Pairs) -> None:
    """Raise UsageError for options that the gate would refuse only after the recordings."""
    if missing := server.find_missing_package():
        raise UsageError(f"the verdict needs {missing}; install the server with: pip install 'stepscope[server]'")
    if pairs.max_slowdown is not None:
        server.check_share(pairs.max_slowdown)
    for path in (pairs.junit, pairs.markdown):
        if path is not None and not path.expanduser().absolute().parent.is_dir():
            raise UsageError(f"{path} cannot be written: its folder does not exist")


def _make_output(given: str | None) -> Path:
    """Make the folder for the runs: `given`, or a new one for None. UsageError if it holds runs already, so that old
    and new runs are not mixed.
    """
    if given is not None and is_url(given):
        raise UsageError(f"{given} is a URL; pairs are recorded to a folder of this machine")
    output = Path(given or Path(DEFAULT_PATH) / f"pairs-{datetime.now():%Y%m%d-%H%M%S}").expanduser().absolute()
    held = next((output / name for name in (BASE, NEW) if (output / name).exists()), None)
    if held is not None:
        raise UsageError(f"{held} holds runs of an earlier comparison; choose another -o")
    try:
        for name in (BASE, NEW):
            (output / name).mkdir(parents=True)
    except OSError as error:
        raise refuse_output(output, error) from None
    return output


def _leave_output(output: Path) -> None:
    """Remove folders without a run. Complete runs stay, so that a comparison of hours is not lost."""
    folders = [output / BASE, output / NEW, output]
    folders += [output.parent] if output.parent.name == DEFAULT_PATH else []
    for folder in folders:
        remove_empty(folder)
