"""Build rank.json of a recorded rank from the training's notes, the descriptions by the assemblers, and the cost of
recording.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

from collector.format import parts
from collector.format.schema.errors import RunError
from collector.format.schema.facts import UNTOLD
from collector.format.schema.manifest import Device, Loader, Overhead, RankManifest, Signal, Warn, Window
from collector.format.steps import summarize_steps
from collector.notes import Notes
from collector.sidecar.coverage_warnings import STEPS_UNSEEN


def build_manifest(
    notes: Notes, described: dict[str, Any], failed: dict[str, str], cpu_frac: float | None
) -> RankManifest:
    """Build rank.json from the notes of the training process and `described`, the fields of the assemblers. `failed`
    maps an assembler that was switched off to the reason. `cpu_frac` is the sidecar's share of a processor.
    """
    signals = {name: Signal(name, **entry) for name, entry in notes.signals.items()}  # type: ignore[arg-type]
    signals |= {signal.name: signal for signal in read_signals(described)}
    signals |= {name: Signal(name, "failed", reason) for name, reason in failed.items()}
    warnings = {code: Warn(code, text) for code, text in notes.warnings.items()}
    warnings |= {warn.code: warn for warn in _read_all(Warn, described.get("warnings", ()))}
    if notes.facts.get("ended_by", UNTOLD) != UNTOLD:
        warnings.pop(STEPS_UNSEEN, None)  # the error is why there is none
    windows = tuple(_read_all(Window, described.get("windows", ())))
    loaders = tuple(_read_all(Loader, [*notes.loaders, *described.get("loaders", ())]))
    return RankManifest(
        rank=notes.rank,
        host=notes.host,
        pid=notes.pid,
        pid_started=notes.pid_started,
        state="recording",
        started_unix_ns=notes.started_unix_ns,
        heartbeat_unix_ns=time.time_ns(),
        devices=tuple(_read_all(Device, notes.devices)),
        loaders=loaders,
        signals=tuple(signals.values()),
        overhead=measure_overhead(notes.overhead, described, windows, cpu_frac),
        windows=windows,
        warnings=tuple(warnings.values()),
        events_lost=int(described.get("events_lost", 0)),
        forward_start=notes.points.get("forward_start"),
        backward_end=notes.points.get("backward_end"),
        point_source=notes.points.get("point_source"),
        cpu_count=notes.cpu_count,
        usable_cores=notes.usable_cores,
        torch_threads=notes.torch_threads,
        facts={**notes.facts, **described.get("facts", {})},
    )


def read_signals(described: dict[str, Any]) -> list[Signal]:
    return _read_all(Signal, described.get("signals", ()))


def _read_all(kind: Any, entries: Any) -> list[Any]:
    """Return the mappings in `entries` as instances of `kind`, without unknown keys; other entries stay as they are."""
    names = {entry.name for entry in dataclasses.fields(kind)}
    return [
        kind(**{key: value for key, value in entry.items() if key in names}) if isinstance(entry, dict) else entry
        for entry in entries
    ]


_COLUMNS = ("step", "kind", "duration_ns", "detailed", "batch", "loader_start_ns")
_MOST_ROWS = 5_000_000


def measure_overhead(
    timed: dict[str, Any], described: dict[str, Any], windows: tuple[Window, ...], sidecar_cpu_frac: float | None
) -> Overhead:
    """Return the cost of recording: the hooks per step, the pauses by detailed windows, and the sidecar's share of a
    processor.

    The cost of the hooks is None without their timings (in `timed`) or without steps. In `described`, `cost` holds the
    number of hook calls in all training steps, or in all batches of a run that only infers, and `mean_step_ns` the mean duration of the steady steps.
    """
    stall, cost = sum(window.stall_ns for window in windows), described.get("cost", {})
    steps, hooks = cost.get("steps", 0), timed.get("hook_ns")
    if not steps or not hooks:
        return Overhead(window_stall_ns=stall, sidecar_cpu_frac=sidecar_cpu_frac)
    total, low, high = _sum_hooks({name: calls / steps for name, calls in cost["calls"].items()}, hooks)
    mean_step = described.get("mean_step_ns") or cost["train_ns"] / steps
    share = total / mean_step if mean_step else None
    return Overhead(total, share, str(timed.get("how", "")), stall, sidecar_cpu_frac, low, high)


def find_mean_step(rank_folder: Path) -> float | None:
    """Return the mean of the steady steps in ns, as on pages; None without any, or beyond `_MOST_ROWS` rows."""
    files = parts.find_files(rank_folder, "steps")
    try:
        if sum(parts.count_rows(path) for path in files) > _MOST_ROWS:
            return None
        found = summarize_steps(parts.read_files(files, "steps", _COLUMNS)).duration_ns
    except RunError:
        return None
    return found.mean if found is not None else None


def _sum_hooks(calls: dict[str, float], hooks: dict[str, Any]) -> tuple[float, float | None, float | None]:
    """Return the time of all hook calls of a step in ns, with a lower and an upper bound. `calls` is the number of
    calls per step of each hook.

    Both bounds are None if any hook was not timed. The errors of the hooks are added as independent errors.
    """
    timed = [(count, *hooks[name]) for name, count in calls.items() if name in hooks]
    total = sum(count * middle for count, middle, _, _ in timed)
    if len(timed) < len(calls):
        return total, None, None
    below = sum((count * (middle - low)) ** 2 for count, middle, low, _ in timed)
    above = sum((count * (high - middle)) ** 2 for count, middle, _, high in timed)
    return total, total - below**0.5, total + above**0.5
