"""Record a small real training, so that a new user has a run to look at: `python -m collector.demo OUTPUT`."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

DEFAULT_STEPS = 160
_NEEDED = {"torch": "torch", "PIL": "pillow"}


def main(output_path: str | Path, steps: int = DEFAULT_STEPS) -> int:
    """Train a small CNN on pictures of digits and record the training below output_path; return an exit code.

    The training takes about 20 s on two slow cores. If a package is missing, stderr names it (exit code 2).
    """
    missing = [package for module, package in _NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        names = " ".join(missing)
        print(f"The demo trains a real model and needs: {names}. Run `pip install {names}`.", file=sys.stderr)
        return 2
    # When the detailed window opens, PyTorch notes that it does not know which code made a tensor. A reader can do
    # nothing about it here.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from collector.demo.training import record_training

    record_training(Path(output_path), steps)
    return 0


def run(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m collector.demo", description="Record a small real training run.")
    parser.add_argument("output", type=Path, help="folder for the run; it will hold profiler/")
    parser.add_argument("--steps", type=int, default=DEFAULT_STEPS, help="training steps (default: %(default)s)")
    given = parser.parse_args(arguments)
    if given.steps < 1:
        parser.error("--steps takes a number from 1")
    return main(given.output, given.steps)
