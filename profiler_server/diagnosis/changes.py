"""The differences between an earlier and a later run of a script: times of the user's lines, code, and settings.

A line is listed only if the mean or median step clearly changed, and the time of the line in the same direction.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from collector.format.run import Run
from collector.format.schema.manifest import Loader, RankManifest
from profiler_server.analysis.compare.comparison import Comparison, Difference
from profiler_server.analysis.recorded_facts import read_source_sums
from profiler_server.diagnosis.limits.lines import HOT_FRAC, MOSTLY_FRAC
from profiler_server.diagnosis.limits.stacks import HOTSPOT_FRAC
from profiler_server.diagnosis.limits.verdict import LESS_FRAC
from profiler_server.facts.case import THREADS, WORKERS, Hotspot, Lines
from profiler_server.format import shorten_middle

_MOST_LINES = 3
_MOST_FILES = 3
_MOST_RATIO = 1.5
"""The changes of lines may sum to this many times the change of the step."""
_ALIKE = 0.6
"""Texts of a line that are this alike are the same line, edited (difflib's own default)."""
_MISSED = 3.0
"""What no sample is in may have had this many of them, with 95 % certainty."""
_UNSEEN = Lines(0, (), 0.0, 0.0, 1.0)
_OF_LOADER = ("batch_size", "num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "in_order", "shuffle")
_OF_OPTIMIZER = ("name", "foreach", "fused")
_MODES = {
    "cudnn_benchmark": "cudnn.benchmark",
    "matmul_precision": "matmul precision",
    "anomaly_mode": "anomaly detection",
    "deterministic": "deterministic algorithms",
    "data_parallel": "nn.DataParallel devices",
}
_OF_DDP = ("find_unused_parameters", "gradient_as_bucket_view", "static_graph", "bucket_cap_bytes")


@dataclass(frozen=True)
class LineChange:
    """A function or line of the user, with its time in ns in the mean step of each run; 0 if no sample shows the line.

    `subject` is the name of the line in advice. `is_loading`: the line is work of the loader, and the times are how
    long the step waits for it. `is_bound`: no sample of the run with the shorter step shows the line, but that run has
    too few samples to show that the line is gone. The time in that run is then an upper bound.
    """

    name: str
    subject: str
    before_ns: float
    after_ns: float
    is_loading: bool = False
    is_bound: bool = False

    @property
    def change_ns(self) -> float:
        return self.after_ns - self.before_ns


def list_mended(changes: Sequence[LineChange]) -> tuple[str, ...]:
    """Return the names of lines that take less time in the later run, except those that a new line may only replace."""
    new_ns = max((entry.after_ns for entry in changes if not entry.before_ns), default=0.0)
    return tuple(entry.subject for entry in changes if -entry.change_ns > 2.0 * new_ns)


@dataclass(frozen=True)
class SettingChange:
    """A setting with different values in the two runs. The values are text."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class CodeChange:
    """A file of the user, with the number of lines that the later run has added and of those that it has removed."""

    file: str
    added: int
    removed: int


def find_line_changes(
    compared: Comparison, before: Lines | None, after: Lines | None, has_workers: bool, loads_less: bool
) -> tuple[LineChange, ...]:
    """Return at most three functions and lines whose time changed by 5 % of the step or more, the largest change first.

    Workers hide the work of the loader. So if the later run has workers (`has_workers`), lines of the loader count only
    if the loader's work became clearly less (`loads_less`).
    """
    before, after, step = before or _UNSEEN, after or _UNSEEN, compared.step
    if not step.is_clear and not _has_other_median(compared):
        return ()
    if step.change_ns > 0:
        longer = [e for e in _list_shorter(step.b_ns, after, step.a_ns, before, has_workers) if not e.is_loading]
        return _choose(step, [replace(e, before_ns=e.after_ns, after_ns=e.before_ns) for e in longer])
    shorter = [
        entry
        for entry in _list_shorter(step.a_ns, before, step.b_ns, after, has_workers)
        if loads_less or not entry.is_loading
    ]
    is_gone = any(not entry.after_ns for entry in shorter)
    return _choose(step, [*shorter, *(_list_new(step.b_ns, after, before) if is_gone else ())])


def _has_other_median(found: Comparison) -> bool:
    """Return whether the median step changed much, in the direction of the mean step. The change of the mean step may
    be unclear because of a few long steps."""
    short, long = sorted((found.a_median_ns, found.b_median_ns))
    return short < LESS_FRAC * long and (found.b_median_ns - found.a_median_ns) * found.step.change_ns > 0


def _choose(step: Difference, changes: Sequence[LineChange]) -> tuple[LineChange, ...]:
    """Return the three largest changes. Empty if all changes together are much larger than the change of the step,
    because a line may then be missing."""
    if abs(sum(entry.change_ns for entry in changes)) > _MOST_RATIO * abs(step.change_ns):
        return ()
    return tuple(sorted(changes, key=lambda entry: -abs(entry.change_ns))[:_MOST_LINES])


def _list_shorter(
    long_ns: float, long: Lines, short_ns: float, short: Lines, has_workers: bool
) -> Iterator[LineChange]:
    """Yield the hotspots of the run with the longer step that certainly take less time in the other run."""
    for spot in long.hotspots:
        if spot.doing or not spot.key:
            continue
        left_ns = _find_share(spot, short) * short_ns
        waits = sum(spot.phases.get(name, 0.0) for name in (WORKERS, THREADS, "data_wait"))
        is_loading = has_workers and waits >= MOSTLY_FRAC * spot.share_frac
        doubt_ns = min(_MISSED / max(short.samples, 1), 1.0) * short_ns
        if (spot.low_frac + spot.backward_frac) * long_ns - left_ns - doubt_ns >= HOTSPOT_FRAC * long_ns:
            is_bound = not left_ns and doubt_ns >= HOT_FRAC * long_ns
            left_ns = doubt_ns if is_bound else left_ns
            yield LineChange(_name(spot), spot.name, spot.whole_frac * long_ns, left_ns, is_loading, is_bound)


def _list_new(step_ns: float, after: Lines, before: Lines) -> Iterator[LineChange]:
    """Yield the hotspots of the later run that have no sample in the earlier run. They may replace lines that are gone."""
    for spot in after.hotspots:
        if spot.key and not spot.doing and not _find_share(spot, before):
            yield LineChange(_name(spot), spot.name, 0.0, spot.whole_frac * step_ns)


def _name(spot: Hotspot) -> str:
    return f"{spot.place} `{shorten_middle(spot.key)}`" if spot.is_of_loop else spot.name


def _find_share(spot: Hotspot, lines: Lines) -> float:
    """Return the share of the mean step that a hotspot takes in the run of `lines`; 0 if no sample shows it there."""
    same = find_same(spot, lines.hotspots)
    return same.whole_frac if same is not None else lines.through_fracs.get(spot.key, 0.0)


def find_same(spot: Hotspot, among: Sequence[Hotspot]) -> Hotspot | None:
    """Return the same function, or line of the loop, in another run: that with the same name or nearly the same text."""
    others = {other.key: other for other in among if other.key and other.is_of_loop == spot.is_of_loop}
    near = difflib.get_close_matches(spot.key, others, 1, _ALIKE) if spot.is_of_loop else [spot.key]
    return next((others[key] for key in near if key in others), None)


def pair_loaders(before: Sequence[Loader], after: Sequence[Loader]) -> Iterator[tuple[Loader, Loader]]:
    """Yield each earlier loader with a later loader of the same data set. Loaders without a partner are left out."""
    left = list(after)
    for loader in before:
        same = next((other for other in left if other.dataset == loader.dataset), None)
        if same is not None:
            left.remove(same)
            yield loader, same


def find_code_changes(before: Run, after: Run) -> tuple[CodeChange, ...]:
    """Return the user's files that differ between the runs, at most three, most changed lines first."""
    old, new = (read_source_sums(run.rank().manifest.facts) for run in (before, after))
    found = []
    for file in old.keys() & new.keys():
        matcher = difflib.SequenceMatcher(None, old[file], new[file], autojunk=False)
        same = sum(block.size for block in matcher.get_matching_blocks())
        found.append(CodeChange(file, len(new[file]) - same, len(old[file]) - same))
    differ = [change for change in found if change.added or change.removed]
    return tuple(sorted(differ, key=lambda change: (-change.added - change.removed, change.file))[:_MOST_FILES])


def find_setting_changes(before: Run, after: Run) -> tuple[SettingChange, ...]:
    """Return the settings that differ: of the script, its loaders, optimizers, threads, modes, ranks and torch."""
    runs = before.manifest, after.manifest
    manifests = before.rank().manifest, after.rank().manifest
    found = list(_compare_arguments(runs[0].argv, runs[1].argv))
    for pair in pair_loaders(manifests[0].loaders, manifests[1].loaders):
        found += _compare(vars(pair[0]), vars(pair[1]), {name: name for name in _OF_LOADER})
    optimizers = [_list_optimizers(manifest) for manifest in manifests]
    for old, new in zip(*optimizers, strict=False):
        labels = {name: f"{new.get('name')} {name}" for name in _OF_OPTIMIZER} | {"name": "optimizer"}
        found += _compare(old, new, labels)
    found += _compare(manifests[0].facts, manifests[1].facts, _MODES)
    ddp = [facts if isinstance(facts := manifest.facts.get("ddp"), dict) else {} for manifest in manifests]
    found += _compare(ddp[0], ddp[1], {name: name for name in _OF_DDP})
    found += _compare(vars(manifests[0]), vars(manifests[1]), {"torch_threads": "torch threads"})
    found += _compare(vars(runs[0]), vars(runs[1]), {"world_size": "ranks", "torch": "torch"})
    return tuple(dict.fromkeys(found))


def _list_optimizers(manifest: RankManifest) -> list[dict[str, Any]]:
    entries = manifest.facts.get("optimizers")
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _compare(before: Mapping[str, Any], after: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[SettingChange]:
    for name, label in labels.items():
        old, new = (_spell(mapping.get(name)) for mapping in (before, after))
        if old != new:
            yield SettingChange(label, old, new)


def _spell(value: object) -> str:
    return "default" if value is None else str(value)[:40]


def _compare_arguments(before: Sequence[str], after: Sequence[str]) -> Iterator[SettingChange]:
    """Yield the script's arguments that differ. The name of each is the option before it, or "arguments"."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, begin, end, later, until in matcher.get_opcodes():
        if kind != "equal":
            option = (
                before[begin - 1]
                if begin and before[begin - 1].startswith("-") and "=" not in before[begin - 1]
                else ""
            )
            old, new = " ".join(before[begin:end])[:80], " ".join(after[later:until])[:80]
            yield SettingChange(option or "arguments", old or "none", new or "none")
