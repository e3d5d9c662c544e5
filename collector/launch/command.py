"""Read the command line of `stepscope run`, and do what it asks for: a recording, a benchmark, pairs or trials."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from collector.edge import say
from collector.format.schema.errors import StepscopeError, UsageError
from collector.launch.activation import activate, read_settings
from collector.launch.launchers import OLDER_COMMAND, find_launcher, wrap_workers
from collector.launch.origin import PLAN_VARIABLE, watch_origin
from collector.launch.script import Program, leave_out_python, run_program
from collector.session.ending import note_exit
from collector.version import find_documents

_USAGE = """%(prog)s [options] script.py [argument …]
       %(prog)s [options] -m module [argument …]
       %(prog)s [options] torchrun [torchrun's options] script.py [argument …]
       %(prog)s [options] accelerate launch [its options] script.py [argument …]
       %(prog)s [options] deepspeed [its options] script.py [argument …]"""
_ABOUT = """Run a training script as Python would, and record it. The script needs no change.

PROFILER_OUTPUT_PATH and PROFILER_OPTIONS stand for --output and --options. With -np, -ng or -w it is a benchmark:
N processes on each of M devices, each with a folder and a benchmark.json, and benchmark_mean.json over all of them.
With --against it records pairs of runs of two versions of the code and says whether the newer one is slower.
With --try it runs the script again and again for a few updates, with one setting changed each time, and prints
what each change saves and the lines to write. What the script writes meanwhile is thrown away."""
_EXAMPLES = """examples:
  %(prog)s -o runs/digits train.py --lr 0.1
  %(prog)s -o runs/ddp torchrun --nproc-per-node 2 train.py
  %(prog)s -o bench/new -np 2 -ng 4 --baseline bench/old infer.py
  %(prog)s --pairs 5 --against main train.py --lr 0.1
  %(prog)s --try --budget 10m train.py --lr 0.1

Documents: """


def run_command(arguments: Sequence[str]) -> int:
    """Run `stepscope run` with these arguments; return its exit code, 2 after an error of ours. The script's exceptions
    pass through."""
    given = _parse(arguments)
    try:
        if given.program is not None:
            given.program = leave_out_python(given.program)
        if given.trying:
            return _try_changes(given)
        if given.against is not None:
            return _run_pairs(given)
        if _is_benchmark(given):
            return _run_benchmark(given)
        _run_recorded(given)
    except StepscopeError as error:
        say(str(error))
        return 2
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    typed = os.path.basename(sys.argv[0])
    parser = argparse.ArgumentParser(
        typed if typed == OLDER_COMMAND else "stepscope run",
        _USAGE,
        _ABOUT,
        f"{_EXAMPLES}{find_documents()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    own, program, is_module = _split(arguments, _add_options(parser))
    own, given_by_launcher = _split_ranks(own)
    given = parser.parse_args(own)
    if given.version:
        from collector.version import __version__

        print(f"stepscope {__version__}")
        parser.exit()
    if not program and not given.baseline:
        parser.error("name a script, or a module after -m")
    if given.maximize_clocks and not _is_benchmark(given):
        parser.error("--maximize-clocks needs -np, -ng or -w")
    if problem := _find_pair_problem(given, bool(program)):
        parser.error(problem)
    if given.budget is not None:
        if not given.trying:
            parser.error("--budget is the time that --try may take; add --try")
        try:
            given.budget = _read_budget(given.budget)
        except ValueError:
            parser.error(f"--budget {given.budget}: give a time between 10s and 24h, such as 300s or 5m")
    if given.trying and (_is_benchmark(given) or given.against is not None or not program):
        parser.error("--try needs a script or a module by itself; leave out -np, -ng, -w, --baseline and --against")
    given.program = Program(program[0], is_module, (*given_by_launcher, *program[1:])) if program else None
    return given


def _add_options(parser: argparse.ArgumentParser) -> set[str]:
    """Add all options to the parser; return the names of those that take a value."""
    add, bench = parser.add_argument, parser.add_argument_group("benchmark").add_argument
    many: dict[str, Any] = {"type": _from(1), "metavar": "N"}
    any_number: dict[str, Any] = {"type": _from(0), "metavar": "N"}
    actions: tuple[argparse.Action, ...] = (
        add(
            "-o",
            "--output",
            metavar="DIR",
            help="folder for the run (default: PROFILER_OUTPUT_PATH, else profiler_output)",
        ),
        add("--options", metavar="JSON", help="options of the Profiler, such as '{\"window\": [100, 5]}'"),
        add("--version", action="store_true", help="print the version"),
        add("-m", action="store_true", help="what follows is a module's name, as for python -m"),
        bench("-np", "--processes", **many, help="processes on each device (default: 1)"),
        bench("-ng", "--gpus", **any_number, help="devices, 0 for the CPU only (default: 1 if there is one)"),
        bench("-w", "--warmup", **any_number, help="batches left out at the start and at the end (default: 1)"),
        bench(
            "--maximize-clocks",
            action="store_true",
            help="hold the GPUs at their highest clock while it runs (needs root)",
        ),
        bench(
            "--baseline",
            type=Path,
            metavar="DIR",
            help="an earlier benchmark to compare with; without a script, compare the one in --output with it",
        ),
    )
    actions += _add_pair_options(parser)
    trial = parser.add_argument_group("trials of changes").add_argument
    actions += (
        trial(
            "--try",
            dest="trying",
            action="store_true",
            help="try settings on the script, such as workers, threads and fused updates, and print what each saves",
        ),
        trial(
            "--budget", metavar="TIME", help="how long all runs may take together, such as 300s or 10m (default: 5m)"
        ),
    )
    return {name for action in actions if action.nargs != 0 for name in action.option_strings}


def _add_pair_options(parser: argparse.ArgumentParser) -> tuple[argparse.Action, ...]:
    add = parser.add_argument_group("pairs of two versions").add_argument
    return (
        add("--pairs", type=_from(1), metavar="N", help="runs of each version, recorded in pairs (default: 5)"),
        add("--against", metavar="REV", help="git revision, or folder of a second checkout, to compare with"),
        add("--max-slowdown", metavar="SHARE", help="a slowdown that passes, such as 0.03 (default: none)"),
        add("--junit", type=Path, metavar="FILE", help="write the verdict as JUnit XML"),
        add("--markdown", type=Path, metavar="FILE", help="write the verdict as Markdown"),
    )


def _find_pair_problem(given: argparse.Namespace, has_program: bool) -> str:
    if given.against is None:
        extra = {"--pairs": given.pairs, "--max-slowdown": given.max_slowdown}
        extra |= {"--junit": given.junit, "--markdown": given.markdown}
        alone = next((name for name, value in extra.items() if value is not None), "")
        return f"{alone} needs --against REV, the version to compare with" if alone else ""
    if _is_benchmark(given):
        return "--against makes pairs of runs, not a benchmark; leave out -np, -ng, -w and --baseline"
    return "" if has_program else "name a script, or a module after -m"


def _split(arguments: Sequence[str], valued: set[str]) -> tuple[list[str], list[str], bool]:
    """Split the arguments into our own and the program's, which begin with the program's name. The third
    value is True if the name follows `-m`, so it is a module's.
    """
    position = 0
    while position < len(arguments) and arguments[position].startswith("-"):
        word = arguments[position]
        if word in ("-m", "--"):
            return list(arguments[:position]), list(arguments[position + 1 :]), word == "-m"
        position += 2 if word in valued else 1
    return list(arguments[:position]), list(arguments[position:]), False


def _split_ranks(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split off `--local_rank=N`, which some launchers put first. Return the other words, and the split-off ones."""
    ranks = [word for word in words if word.startswith(("--local_rank=", "--local-rank="))]
    return [word for word in words if word not in ranks], ranks


def _from(least: int) -> Callable[[str], int]:
    """Return a parser for whole numbers of at least `least`."""

    def read(text: str) -> int:
        if not text.lstrip("+-").isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
        return int(text)

    return read


def _read_budget(text: str) -> float:
    """Return a time in seconds: 300, 300s, 5m or 1h. Raises ValueError for anything else."""
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:], 0.0)
    value = float(text[:-1] if unit else text) * (unit or 1.0)
    if not 10.0 <= value <= 86_400.0:
        raise ValueError(text)
    return value


def _is_benchmark(given: argparse.Namespace) -> bool:
    return any(value is not None for value in (given.processes, given.gpus, given.warmup, given.baseline))


def _run_recorded(given: argparse.Namespace) -> None:
    program: Program = given.program
    own = [f"--output={given.output}"] if given.output else []
    own += [f"--options={given.options}"] if given.options is not None else []
    launcher = find_launcher(program)
    if launcher is not None:
        run_program(wrap_workers(launcher, program, own))
        return
    if os.environ.get(PLAN_VARIABLE):
        from collector.launch.trying.inside import begin_trial

        if not begin_trial().records:
            run_program(program)
            return
    watch = activate(read_settings(given.output, given.options, os.environ))
    watch_origin(os.environ)
    try:
        run_program(program)
    except UsageError:
        watch.stop()
        raise
    except SystemExit as error:
        note_exit(error)
        raise


def _try_changes(given: argparse.Namespace) -> int:
    from collector.launch.trying import USUAL_BUDGET_S, Trying, try_changes

    return try_changes(Trying(given.program, given.budget or USUAL_BUDGET_S, given.output))


def _run_pairs(given: argparse.Namespace) -> int:
    from collector.launch.pairs import USUAL_PAIRS, Pairs, run_pairs

    return run_pairs(
        Pairs(
            program=given.program,
            count=given.pairs or USUAL_PAIRS,
            against=given.against,
            output=given.output,
            options=given.options,
            max_slowdown=given.max_slowdown,
            junit=given.junit,
            markdown=given.markdown,
        )
    )


def _run_benchmark(given: argparse.Namespace) -> int:
    from collector.launch.benchmark import Benchmark, compare_only, run_benchmark

    output = read_settings(given.output, "", os.environ).output_path
    if given.program is None:
        return compare_only(output, given.baseline)
    return run_benchmark(
        Benchmark(
            program=given.program,
            output=output,
            options=given.options,
            processes=given.processes or 1,
            gpus=given.gpus,
            warmup=1 if given.warmup is None else given.warmup,
            maximize_clocks=given.maximize_clocks,
            baseline=given.baseline,
        )
    )
