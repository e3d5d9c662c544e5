"""What two trials of a cell have in common: their output without what changes from one start to the next."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.endings.cells import STEPS, Cell
from tests.endings.trial import Trial

_OURS = "stepscope:"
_CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T_]\d\d:\d\d:\d\d([.,]\d+)?"), "<time>"),
    (re.compile(r"\b([EWIF])\d{4} \d\d:\d\d:\d\d\.\d+( \d+)?"), r"\1 <time>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b"), "<id>"),
    (re.compile(r"0x[0-9a-f]{4,}"), "<address>"),
    (re.compile(r"\b\d{4,}\b"), "<number>"),
    (re.compile(r"\d+\.\d+ ?(s|ms|seconds)\b"), "<duration>"),
)
_RANDOM = re.compile(r"(?<=[-_./])(?=[a-z0-9_]*\d)[a-z0-9_]{8,}|(?<=[-_])[A-Za-z0-9_]{8}(?=/|$|\.\w+$)|\d+")
_PROMPTS = re.compile(r"^(>>> |\.\.\. )+")
_STEP = re.compile(r"step (\d+) of rank ")
_LINE_OF_ERROR = re.compile(r"^(?:\[rank\d+\]: ?)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b.*)$")
_FRAME = re.compile(r'File "[^"]*[/\\]collector[/\\][^"]*"')
_BLOCK = "Traceback (most recent call last):"


@dataclass(frozen=True)
class Form:
    """What must be the same bare and recorded. `tracebacks` are those of the planted errors where chance decides which
    others are printed; else they are in `err`."""

    code: int | None
    has_ended: bool
    out: tuple[str, ...]
    err: tuple[str, ...]
    tracebacks: tuple[str, ...]
    bytes: tuple[tuple[str, str], ...]


def build_form(cell: Cell, trial: Trial) -> Form:
    out, err = _clean(trial.out), _clean(trial.err)
    blocks = list_tracebacks(err)
    many = bool(cell.kind.traits & {"ranks", "several"}) or cell.kind.name == "threads"
    if cell.is_racy:
        out = [line for line in out if line.startswith(("step ", "last step", "the ", "inside"))]
        errors = sorted({line for block in blocks for line in _name_error(block)}) if not many else []
        err = errors
        blocks = [block for block in blocks if block.endswith("planted")]
        if cell.way.is_outside:
            blocks = []
    else:
        blocks = []
    return Form(
        code=trial.code,
        has_ended=trial.end_s is not None,
        out=tuple(sorted(out) if many else out),
        err=tuple(sorted(err) if many else err),
        tracebacks=tuple(sorted(blocks)),
        bytes=tuple(sorted(trial.bytes.items())),
    )


def _clean(text: str) -> list[str]:
    """Return the lines that are the training's own, up to its last step."""
    lines = (_PROMPTS.sub("", line).rstrip() for line in text.splitlines())
    return [_replace(line) for line in lines if line and not line.startswith(_OURS) and not _is_later(line)]


def _replace(line: str) -> str:
    if _STEP.match(line):
        return line
    for pattern, instead in _CHANGING:
        line = pattern.sub(instead, line)
    return line


def _is_later(line: str) -> bool:
    found = _STEP.match(line)
    return found is not None and int(found[1]) > STEPS


def list_tracebacks(lines: list[str]) -> list[str]:
    """Return each traceback as one text that begins with the word Traceback and ends with the line of its error."""
    blocks: list[str] = []
    current: list[str] = []
    for line in lines:
        start = line.find(_BLOCK)
        if start >= 0:
            current = [_BLOCK]
        elif current:
            current.append(_strip_rank(line))
            if _LINE_OF_ERROR.match(line):
                blocks.append("\n".join(current))
                current = []
    return blocks


def _strip_rank(line: str) -> str:
    return re.sub(r"^\[rank\d+\]: ?", "", line)


def _name_error(block: str) -> list[str]:
    found = _LINE_OF_ERROR.match(block.rsplit("\n", 1)[-1])
    return [] if found is None else [found[1].split(":")[0]]


def find_our_frames(trial: Trial) -> list[str]:
    """Return the lines of tracebacks that are ours: no error of a training is to show one."""
    return sorted({found[0] for line in (trial.out + trial.err).splitlines() if (found := _FRAME.search(line))})


def name_files(trial: Trial) -> frozenset[str]:
    """Return the kinds of the files outside of the run, without what is random in their names."""
    return frozenset(_RANDOM.sub("*", name) for name in trial.files)
