"""Spell counts with their nouns, ranks, percents and hints, in the same form in all texts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

MOST_NAMED = 8
REQUEST_RANGE, CALL_RANGE = "request", "model call"
"""The names of ranges that are the handling of a request, and a call of a model."""


def format_number_of(count: int, noun: str) -> str:
    """Return a count with its noun, `1 step`, `40 batches`, `1,200 steps`."""
    return f"{count:,} {noun if count == 1 else form_plural(noun)}"


def format_ranks(there: int, world_size: int) -> str:
    """Return the number of ranks with data: `4 ranks`, or `2 of 128 ranks` if the other ranks have no data."""
    of = f"{there:,} of " if there < world_size else ""
    return of + format_number_of(max(there, world_size), "rank")


def format_ranks_named(ranks: Sequence[int], count: int | None = None) -> str:
    """Return `rank 3` or `ranks 3, 5`; of more than MOST_NAMED ranks only the first are named. `count` is their total
    number if `ranks` is not complete, None if it is."""
    count = len(ranks) if count is None else count
    if count == 1:
        return f"rank {ranks[0]}"
    more = f" and {count - MOST_NAMED:,} more" if count > MOST_NAMED else ""
    return f"ranks {', '.join(map(str, ranks[:MOST_NAMED]))}{more}"


def suggest_nearest(name: str, known: Sequence[str], otherwise: str, cutoff: float = 0.6) -> str:
    """Return `did you mean 'x'?` with the nearest known name, or `otherwise` if no name is near."""
    near = difflib.get_close_matches(name, known, 1, cutoff)
    return f"did you mean {near[0]!r}?" if near else otherwise


def form_plural(noun: str) -> str:
    """Return the plural of a regular noun: `steps`, `batches`."""
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def format_percent(part_frac: float) -> str:
    """Return a fraction in whole percent, `70 %`."""
    return f"{100.0 * part_frac:.0f} %"


def format_part(part: int, whole: int) -> str:
    """Return `part` of `whole` in whole percent, `98 %`. A nonzero part is never 0 %, an incomplete one never 100 %."""
    percent = round(100 * part / whole)
    if percent == 0 and part:
        return "less than 1 %"
    return "more than 99 %" if percent == 100 and part < whole else f"{percent} %"


_OF_TRAINING = {
    "loading, preparing the batch, forward, backward and update": "loading, preparing the batch and forward",
    "loading, forward, backward and update": "loading and forward",
    "forward, backward and update take": "the forward takes",
    "Forward, backward and update take": "The forward takes",
    "Forward, backward and update": "The forward",
    "forward, backward and update": "the forward",
    "in the model and in autograd": "in the model",
    "after the parameter update": "after the forward",
    "before the parameter update": "before the forward",
    "Communication-bound: training waits": "Communication-bound: the model waits",
    "Training waits": "The model waits",
    "training waits": "the model waits",
    "outside of training": "outside of the model",
    "the recorded training": "the recorded time",
    "The training thread": "The recorded thread",
    "training thread": "recorded thread",
    "the training process": "the process",
    "The training process": "The process",
    "training steps": "steps",
    "training loop": "loop",
    "keeps training waiting": "keeps the model waiting",
    "while training goes on": "meanwhile",
    "held the training up": "held the thread up",
    "held the training": "held the thread",
    "of training time": "of its time",
    "Training process": "Process",
    "training process": "process",
    "Training script": "Script",
    "training script": "script",
    "for a training on": "for a run on",
    "train on a machine": "run on a machine",
    "has no training step": "trains nothing",
    "trained on": "ran on",
    "and nothing trains meanwhile": "and no model runs meanwhile",
    "then trains": "then calls the model",
    "training used": "it used",
    "Gap, communication, update and tail": "Gap, communication and tail",
    "the parameter update, and what": "and what",
    "Forward and backward": "Forward",
    "this training": "this run",
    "loss.item()": "result",
    "train.py": "script.py",
}
"""Words of a training -> what they are in a run that only infers. Longer ones come first."""
_UNIT = re.compile(r"(?<![\w.{])([Ss])tep(s?)(?![\w({}]|\.\w)")
_WORK = re.compile(r"(?<![\w.{])(epoch(s?)|[Tt]raining)(?![\w({}]|[.:]\w)")


_noun: ContextVar[str] = ContextVar("noun of a step", default="step")


@contextmanager
def speak_of(noun: str) -> Iterator[None]:
    """Let `reword` speak of a run whose steps are called `noun`, while the block runs."""
    token = _noun.set(noun)
    try:
        yield
    finally:
        _noun.reset(token)


def reword(text: str, noun: str = "") -> str:
    """Return a text of ours for a run whose steps are called `noun`, by default that of `speak_of`. If they are batches or
    calls, nothing trains, and no word of a training is left. Give it texts before names of the user are filled in; fields
    in braces stay.
    """
    noun = noun or _noun.get()
    return text if noun == "step" else _reword(text, noun)


def _reword(text: str, noun: str) -> str:
    for ours, theirs in _OF_TRAINING.items():
        text = text.replace(ours, theirs)

    def name_unit(found: re.Match[str]) -> str:
        word = form_plural(noun) if found[2] else noun
        return word.capitalize() if found[1] == "S" else word

    def name_work(found: re.Match[str]) -> str:
        if found[1].startswith("e"):
            return f"pass{'es' if found[2] else ''} over the data"
        return "Inference" if found[1][0] == "T" else "inference"

    return _WORK.sub(name_work, _UNIT.sub(name_unit, text))
