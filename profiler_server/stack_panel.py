"""The panel with the functions that take the time of a phase or a stage. Two pages show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from collector.format.phases import PHASES
from collector.format.run import RankRun
from profiler_server.analysis.stacks.frames import Frame, lay_out
from profiler_server.analysis.stacks.stacks import Stacks, read_stacks
from profiler_server.diagnosis.limits.stacks import LEAST_SAMPLES
from profiler_server.facts.steps import NamedFunction, Part
from profiler_server.figures.flame import Flame, build_flame
from profiler_server.format import fill_in, format_count, format_number_of, shorten_middle
from profiler_server.page import Notice, build_part, explain_absence
from profiler_server.words.phrases import spell_call, spell_function, spell_share

REMEDY = 'Profiler("runs/my-run", stacks=True)'
_TITLE = "Stacks were not sampled"
_STAGE_LABELS: Mapping[str, str] = {
    "read": "Read",
    "transform": "Transform",
    "collate": "Collate",
    "fetch": "Read and transform",
    "threads": "Threads that the recorded one waits for",
    "beside": "Threads that run while the recorded one stands still",
}
_OF_LOADER, _OF_STEP = ("read", "transform", "collate", "fetch", "threads"), ("threads", "beside")
_LONGEST_NAME = 80
_LEAST_FRAC = 0.01
_Part = tuple[str, Part, Mapping[tuple[Frame, ...], int]]
"""The label of a phase or a stage, its functions, and its stacks."""


@dataclass(frozen=True)
class FunctionRow:
    """A named function. `path` is the full path of its file, with the line. `bar` is its share in percent."""

    function: str
    caller: str
    place: str
    path: str
    share: str
    bar: float


@dataclass(frozen=True)
class StackPart:
    """A phase or a stage. `lead` names the function with the largest share, or says why none is named. `is_open` means
    that the part is unfolded at first.
    """

    label: str
    samples: str
    lead: str
    rows: tuple[FunctionRow, ...]
    flame: Flame | None
    is_open: bool


@dataclass(frozen=True)
class StackPanel:
    """The parts of the panel, or a notice on why there are none. `note` says how samples are counted."""

    notice: Notice | None
    parts: tuple[StackPart, ...]
    note: str


def build_phase_panel(rank: RankRun) -> StackPanel | None:
    """Return the panel with the functions of each phase; None for a trace without stacks."""
    found = _read(rank)
    if not isinstance(found, Stacks):
        return found
    labels = {phase.name: phase.label for phase in PHASES}
    parts = [(labels[name], found.phase(name), found.list_below(name)) for name in found.phases]
    parts += _list_stages(found, None, _OF_STEP)
    return _build(parts, "A sample of the recorded thread counts for the phase that it was taken in.")


def build_stage_panel(rank: RankRun, loader: int | None) -> StackPanel | None:
    """Return the panel with the functions of each stage of DataLoader `loader`; None for a trace without stacks."""
    found = _read(rank)
    if not isinstance(found, Stacks):
        return found
    return _build(
        _list_stages(found, loader, _OF_LOADER),
        "Of the workers one after the other was sampled, or the recorded thread where it makes the batches.",
    )


def _list_stages(found: Stacks, loader: int | None, names: Iterable[str]) -> list[_Part]:
    return [
        (_STAGE_LABELS[name], found.stage(loader, name), found.list_inside(loader, name))
        for name in names
        if found.find_stage(loader, name)
    ]


def _read(rank: RankRun) -> Stacks | StackPanel | None:
    if rank.manifest.is_trace and rank.status("stacks").state != "there":
        return None
    found, absence = build_part(
        "The stacks cannot be read", lambda: explain_absence(rank, "stacks", _TITLE, REMEDY) or read_stacks(rank)
    )
    if absence is None and found is None:
        absence = Notice("empty", "No stacks to show", "Their names are left out of this view.")
    return StackPanel(absence, (), "") if absence else found


def _build(parts: Sequence[_Part], note: str) -> StackPanel:
    if not parts:
        reason = fill_in("No sample lies in the {nouns} that are shown: there are about 50 a second.")
        return StackPanel(Notice("empty", "No samples", reason), (), "")
    widest = max(part.samples for _, part, _ in parts)
    built = tuple(_build_part(label, part, below, part.samples == widest) for label, part, below in parts)
    few = f"of fewer than {LEAST_SAMPLES} samples only what is surely most of a phase is named."
    error = f"± is the error of counting (95 %); {few}"
    return StackPanel(None, built, f"{note} {error}")


def _build_part(label: str, part: Part, below: Mapping[tuple[Frame, ...], int], is_open: bool) -> StackPart:
    nodes = lay_out(below) if part.functions else ()
    return StackPart(
        label=label,
        samples=format_number_of(part.samples, "sample"),
        lead=_say_first(part),
        rows=tuple(_build_row(entry) for entry in part.functions if entry.share_frac >= _LEAST_FRAC),
        flame=build_flame(label, nodes, part.samples) if nodes else None,
        is_open=is_open and bool(part.functions),
    )


def _say_first(part: Part) -> str:
    if not part.functions:
        return f"too few to name a function, {format_count(LEAST_SAMPLES)} are needed"
    first = part.functions[0]
    return f"{shorten_middle(spell_function(first), _LONGEST_NAME)}, {spell_share(first)}"


def _build_row(entry: NamedFunction) -> FunctionRow:
    function = f"{entry.function}, its own line" if entry.is_own_line else spell_call(entry)
    return FunctionRow(
        function=shorten_middle(function, _LONGEST_NAME),
        caller=shorten_middle(entry.caller, _LONGEST_NAME),
        place=shorten_middle(entry.place, _LONGEST_NAME),
        path=f"{entry.file}:{entry.line}",
        share=spell_share(entry),
        bar=round(100 * entry.share_frac, 2),
    )
