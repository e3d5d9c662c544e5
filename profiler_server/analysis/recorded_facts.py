"""Readers of the facts in rank.json: unused gradients, module calls, samplers, logging, source lines and completeness.

A damaged fact counts as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from profiler_server.facts.loading import SamplerTimes
from profiler_server.facts.machine import RepeatedBackwards, RepeatedNodes, SpareNodes
from profiler_server.facts.steps import Logged, ModelCalls, UnusedGradients

_MOST_NODES, _MOST_TEXT = 4096, 120
_MOST_SUMS, _MOST_GAPS = 1 << 16, 1000
Count = Annotated[int, Meta(ge=0)]
Some = Annotated[int, Meta(ge=1)]
Time = Annotated[int, Meta(ge=0, le=10**13)]
Number = Annotated[int, Meta(ge=0, le=10**15)]
Moment = Annotated[int, Meta(ge=0, le=1 << 62)]
T = TypeVar("T")


def _take(value: Any, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def _take_each(values: Any, kind: type[T]) -> list[T]:
    found = (_take(value, kind) for value in (values if isinstance(values, list) else ()))
    return [value for value in found if value is not None]


class _Nodes(Struct):
    step: Number = 0
    nodes: Annotated[list[tuple[Number, Number, Number, int]], Meta(max_length=_MOST_NODES)] = field(
        default_factory=list
    )


class _Unused(_Nodes, kw_only=True):
    parameters: Some
    updated: Count
    held: Count = 0


class _Spare(_Nodes, kw_only=True):
    used_frac: Annotated[float, Meta(ge=0.0, le=1.0)]


def read_spare_nodes(facts: Mapping[str, Any]) -> SpareNodes | None:
    """Return the operators whose results are mostly dropped; None if there are none, or if nothing was recorded."""
    found = _take(facts.get("spare_nodes"), _Spare)
    return SpareNodes(found.step, tuple(found.nodes), None, found.used_frac) if found and found.nodes else None


class _Backwards(_Nodes, kw_only=True):
    kind: Literal["losses", "inputs", "parts"]
    backwards: Some
    place: Any = ""


def read_repeated_nodes(facts: Mapping[str, Any]) -> RepeatedNodes | None:
    """Return the repeated computations of the examined step; None if there are none, or if nothing was recorded."""
    found = _take(facts.get("repeated_nodes"), _Nodes)
    return RepeatedNodes(found.step, tuple(found.nodes)) if found is not None and found.nodes else None


def read_repeated_backwards(facts: Mapping[str, Any]) -> RepeatedBackwards | None:
    """Return the backwards of the examined step that run through the same nodes; None if there are none, or if nothing
    was recorded.
    """
    found = _take(facts.get("repeated_backwards"), _Backwards)
    if found is None or not found.nodes:
        return None
    place = str(found.place)[:_MOST_TEXT]
    return RepeatedBackwards(found.step, tuple(found.nodes), None, found.kind, found.backwards, place)


def read_unused_gradients(facts: Mapping[str, Any]) -> UnusedGradients | None:
    """Return the parameters whose gradients no update used; None if there are none, or if nothing was recorded."""
    found = _take(facts.get("unused_gradients"), _Unused)
    if found is None:
        return None
    held = min(found.held, found.parameters)
    return UnusedGradients(found.parameters, held, found.updated, found.step, tuple(found.nodes))


Share = Annotated[float, Meta(ge=0.0, le=1.0)]
_MOST_CALLED = 16


class _Called(Struct):
    looks: Some
    calls: Some
    padded: Count
    useful_frac: Share
    longest_frac: Share
    width: Number
    rows: Number
    again: Count
    again_ns: Time
    positions: Count = 0
    compared: Count = 0
    known: Count = 0
    known_ns: Time = 0
    tokens: Count = 0
    token_rows: Count = 0
    real: Count = 0
    trained: int = -1
    model: Any = ""
    place: Any = ""


def read_model_calls(facts: Mapping[str, Any]) -> tuple[ModelCalls, ...]:
    """Return the counts of padded and of repeated calls, one entry per module and line that was examined."""
    found = _take_each(facts.get("calls"), _Called)[:_MOST_CALLED]
    texts = [{name: str(getattr(entry, name))[:_MOST_TEXT] for name in ("model", "place")} for entry in found]
    return tuple(ModelCalls(**(msgspec.structs.asdict(entry) | text)) for entry, text in zip(found, texts, strict=True))


class Start(Struct):
    """From when on the time to the first step counts, whether that is the start of the process, when the recording
    began, and when the import of torch began and ended, if that was seen; in Unix ns."""

    since_unix_ns: Moment
    is_process: bool
    began_unix_ns: Moment
    torch_unix_ns: Annotated[tuple[Moment, ...], Meta(max_length=2)] = ()


def read_start(facts: Mapping[str, Any]) -> Start | None:
    return _take(facts.get("start_up"), Start)


class _Sampler(Struct):
    epochs: Some
    batches: Annotated[int, Meta(ge=2)]
    first_ns: Count
    rest_ns: Count
    longest_ns: Count
    kind: Any = "sampler"


def read_sampler(facts: Mapping[str, Any], loader: int) -> SamplerTimes | None:
    """Return the time per batch in which the training thread chose samples for the loader of this number; None if
    unrecorded.
    """
    entries = _take_each(facts.get("samplers"), dict)
    found = _take(next((entry for entry in entries if entry.get("loader") == loader), None), _Sampler)
    if found is None:
        return None
    usual_ns = max(found.rest_ns - found.longest_ns, 0) / (found.batches - 1)
    return SamplerTimes(str(found.kind)[:_MOST_TEXT], usual_ns)


class _Library(Struct):
    calls: Count
    total_ns: Count
    longest_ns: Count
    name: Any = ""


class _Logging(Struct):
    steps: Some
    libraries: list[Any]


def read_logged(facts: Mapping[str, Any]) -> Logged | None:
    """Return the times of the logging library that took most time on the training thread, or None if unrecorded."""
    noted = _take(facts.get("logging"), _Logging)
    most = max(_take_each(noted.libraries, _Library), key=lambda entry: entry.total_ns, default=None) if noted else None
    if noted is None or most is None:
        return None
    return Logged(str(most.name)[:_MOST_TEXT], most.calls, most.total_ns / noted.steps, most.longest_ns)


def read_source_lines(facts: Mapping[str, Any]) -> dict[str, dict[int, str]]:
    """Return the recorded text of the user's lines, by file and line."""
    files = facts.get("source_lines")
    found = {file: _take(lines, dict[str, str]) for file, lines in files.items()} if isinstance(files, dict) else {}
    return {
        file: {int(number): text[:_MOST_TEXT] for number, text in lines.items() if number.isdecimal()}
        for file, lines in found.items()
        if lines is not None
    }


def read_source_sums(facts: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the recorded checksums of the lines of the user's files. The keys are file names without folders."""
    files = facts.get("source_sums")
    found = {file: _take(sums, str) for file, sums in files.items()} if isinstance(files, dict) else {}
    return {
        file.rpartition("/")[2]: tuple(sums[at : at + 4] for at in range(0, len(sums), 4))
        for file, sums in found.items()
        if sums is not None and len(sums) <= _MOST_SUMS
    }


def read_completeness(facts: Mapping[str, Any]) -> str | None:
    """Return the result of the check of a trace; None if the trace was not checked.

    The result is `complete`, or a text on gaps and impossible values, cut at 1,000 characters.
    """
    found = facts.get("completeness")
    return found[:_MOST_GAPS] if isinstance(found, str) and found else None
