"""rank.json of a rank that is recorded: what the training process noted, and what the assemblers say of it."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from collector.format.schema.facts import UNTOLD
from collector.format.schema.manifest import Device, Loader, RankManifest, Signal, Warn, Window
from collector.notes import Notes
from collector.sidecar.cost import measure_overhead
from collector.sidecar.losses import STEPS_UNSEEN


def build_manifest(
    notes: Notes, described: dict[str, Any], failed: dict[str, str], cpu_frac: float | None
) -> RankManifest:
    """Make rank.json of what the trainer noted and what the assemblers describe."""
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
    """Return the signals that the assemblers describe."""
    return _read_all(Signal, described.get("signals", ()))


def _read_all(kind: Any, entries: Any) -> list[Any]:
    """Make dataclasses of mappings, ignoring what they do not declare; what is one already stays."""
    names = {entry.name for entry in dataclasses.fields(kind)}
    return [
        kind(**{key: value for key, value in entry.items() if key in names}) if isinstance(entry, dict) else entry
        for entry in entries
    ]
