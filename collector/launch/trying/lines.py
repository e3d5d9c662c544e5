"""Find the user's own lines that a change rewrites, and show the user the diff to apply."""

from __future__ import annotations

import ast
import difflib
import functools
import itertools
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collector.launch.trying.applying import Candidate

Places = Mapping[str, Sequence[tuple[str, int, str]]]
"""Name of a called function -> file, line and name of each call in the script."""
Edit = tuple[int, int, str]
"""The first and last position of the bytes to replace in a file, and the new text."""
_MOST_PLACES = 3
_LIBRARIES = ("-packages/", f"{sysconfig.get_path('stdlib')}/", f"{Path(__file__).parents[2]}/", "<")


def follow_places(torch: Any) -> dict[str, list[tuple[str, int, str]]]:
    """Return a mapping from a kind of call, such as "optimizer", to places in the user's code that make such calls:
    file, line, and called name. It fills as the script runs.
    """
    found: dict[str, list[tuple[str, int, str]]] = {}
    made = {
        "DataLoader": torch.utils.data.DataLoader,
        "optimizer": torch.optim.Optimizer,
        "embedding": torch.nn.Embedding,
        "ddp": torch.nn.parallel.DistributedDataParallel,
        "anomaly": torch.autograd.set_detect_anomaly,
    }
    for key, kind in made.items():
        kind.__init__ = _note_calls(kind.__init__, found.setdefault(key, []))
    detect = torch.autograd.detect_anomaly
    detect.__init__ = _note_calls(detect.__init__, found["anomaly"])
    torch.set_num_threads = _note_calls(torch.set_num_threads, found.setdefault("threads", []))
    return found


def _note_calls(original: Callable[..., Any], places: list[tuple[str, int, str]]) -> Callable[..., Any]:
    @functools.wraps(original)
    def noted(*args: Any, **kwargs: Any) -> Any:
        if len(places) < _MOST_PLACES:
            frame = sys._getframe(1)
            while frame is not None and any(part in frame.f_code.co_filename for part in _LIBRARIES):
                frame = frame.f_back  # type: ignore[assignment]
            name = type(args[0]).__name__ if original.__name__ == "__init__" else original.__name__
            if frame is not None and (place := (frame.f_code.co_filename, frame.f_lineno, name)) not in places:
                places.append(place)
        return original(*args, **kwargs)

    return noted


def list_edits(candidates: Sequence[Candidate], places: Places) -> list[str]:
    """Return lines of text that show these changes: a diff where the user's line is known, else the code to write."""
    edits: dict[str, set[Edit]] = {}
    lines = []
    for candidate in candidates:
        found = [(place[0], _edit_call(place, candidate)) for place in places.get(candidate.place, ())]
        for file, several in found:
            edits.setdefault(file, set()).update(several)
        if not any(several for _, several in found):
            lines.append(f"  {candidate.code}")
    for file, edited in edits.items():
        before = Path(file).read_bytes()
        after = before
        for begin, end, text in sorted(edited, reverse=True):
            after = after[:begin] + text.encode() + after[end:]
        old, new = (content.decode().splitlines() for content in (before, after))
        shown = os.path.relpath(file) if Path(file).is_relative_to(Path.cwd()) else file
        diff = list(difflib.unified_diff(old, new, n=0, lineterm=""))[2:]
        lines += [f"  {_name_place(shown, line) if line.startswith('@@') else line}" for line in diff]
    return lines


def _name_place(file: str, header: str) -> str:
    return f"{file}:{header.split()[1][1:].partition(',')[0]}"


def _edit_call(place: tuple[str, int, str], candidate: Candidate) -> Sequence[Edit]:
    """Return the edits that rewrite the call at `place` (file, line, function name); empty if none or several match."""
    file, line, name = place
    try:
        text = Path(file).read_text("utf-8")
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and _is_at(node, line, name)]
    except (OSError, ValueError, SyntaxError):
        return ()
    return _rewrite_call(text, calls[0], candidate) if len(calls) == 1 else ()


def _is_at(call: ast.Call, line: int, name: str) -> bool:
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return called == name and call.lineno <= line <= (call.end_lineno or call.lineno)


def _rewrite_call(text: str, call: ast.Call, candidate: Candidate) -> Sequence[Edit]:
    """Return the edits that set the candidate's keywords in a call, or replace the call by the candidate's code; empty
    if the call may pass the keywords in another way."""
    starts = [0, *itertools.accumulate(len(row) for row in text.encode().splitlines(keepends=True))]

    def span(node: Any) -> tuple[int, int]:
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    if candidate.keywords is None:
        return [(*span(call), candidate.code)]
    given = {each.arg: each for each in call.keywords}
    if None in given or not call.args or len(call.args) > 3:
        return ()  # the argument may be passed by **options or by its position
    ends = sorted(span(each)[1] for each in (*call.args, *call.keywords))
    edits, added = [], ""
    for name, value in candidate.keywords.items():
        if name not in given:
            added += f", {name}={value!r}" if value is not None else ""
        elif value is not None:
            edits.append((*span(given[name].value), repr(value)))
        else:
            begin, end = span(given[name])
            edits.append((max(each for each in ends if each < begin), end, ""))
    return [*edits, *([(ends[-1], ends[-1], added)] if added else [])]
