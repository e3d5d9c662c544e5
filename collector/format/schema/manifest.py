"""The manifests: `profiler/run.json` (what the run is) and `profiler/rank_<r>/rank.json` (how one rank fared)."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from collector.format.schema.errors import NewerSchemaError, TableBrokenError
from collector.format.schema.recovery import spell_recovery
from collector.format.schema.version import SCHEMA_VERSION

RunState = Literal["recording", "complete", "crashed", "imported"]
Source = Literal["collector", "kineto"]
SignalState = Literal["on", "off", "failed", "unavailable"]


@dataclass(frozen=True)
class Device:
    """One accelerator, as the driver describes it."""

    index: int
    name: str
    kind: str = "cuda"
    memory_bytes: int | None = None
    multiprocessors: int | None = None
    compute_capability: str | None = None


@dataclass(frozen=True)
class Loader:
    """One DataLoader of the run: the arguments that advice refers to. `id` is the `loader` column.

    `remade` counts the DataLoaders like it that the script made in its place, one after the other. `watched` is an
    iterable of the script's that it gave to `collector.watch`: no DataLoader, so nothing of one is known.
    """

    id: int
    dataset: str
    style: Literal["map", "iterable"]
    batch_size: int | None = None
    num_workers: int = 0
    prefetch_factor: int | None = None
    pin_memory: bool = False
    persistent_workers: bool = False
    in_order: bool = True
    shuffle: bool | None = None
    length_batches: int | None = None
    start_method: str | None = None
    remade: int = 0
    watched: bool = False


@dataclass(frozen=True)
class Signal:
    """Whether a part of the collection ran; `reason` says why it is off, failed or unavailable, and what to do."""

    name: str
    state: SignalState
    reason: str = ""


@dataclass(frozen=True)
class Overhead:
    """What recording cost, as measured in the run itself. `how` says how it was measured."""

    training_thread_ns_per_step: float | None = None
    share_frac: float | None = None
    how: str = ""
    window_stall_ns: int = 0
    sidecar_cpu_frac: float | None = None


@dataclass(frozen=True)
class Window:
    """One detailed window: steps `first_step`..`last_step`, both included. `stall_ns` is what opening and saving it cost."""

    first_step: int
    last_step: int
    start_ns: int
    end_ns: int
    stall_ns: int = 0
    trigger: str = "option"
    trace_file: str | None = None


@dataclass(frozen=True)
class Warn:
    """Something that a reader of the run must know. `code` is stable, `text` says what and what to do."""

    code: str
    text: str


@dataclass(frozen=True)
class RunManifest:
    """`run.json`. Every time in the run is in ns since `epoch_unix_ns`."""

    id: str
    name: str
    created_unix_ns: int
    epoch_unix_ns: int
    source: Source
    world_size: int
    host: str
    schema_version: int = SCHEMA_VERSION
    stepscope: str = ""
    python: str = ""
    torch: str | None = None
    cuda: str | None = None
    launch_id: str = ""
    script: str = ""
    argv: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RankManifest:
    """`rank_<r>/rank.json`, rewritten while the rank records. `heartbeat_unix_ns` is when that was last done.

    `recorded_whole` marks an import that holds all that Stepscope had recorded: it is judged as the run itself is.
    """

    rank: int
    host: str
    pid: int
    state: RunState
    started_unix_ns: int
    heartbeat_unix_ns: int
    pid_started: float | None = None
    ended_unix_ns: int | None = None
    devices: tuple[Device, ...] = ()
    loaders: tuple[Loader, ...] = ()
    signals: tuple[Signal, ...] = ()
    overhead: Overhead = field(default_factory=Overhead)
    windows: tuple[Window, ...] = ()
    warnings: tuple[Warn, ...] = ()
    events_lost: int = 0
    forward_start: str | None = None
    backward_end: str | None = None
    point_source: str | None = None
    cpu_count: int | None = None
    usable_cores: float | None = None
    torch_threads: int | None = None
    recorded_whole: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    """Settings that rules read: parameters, optimizers (name, foreach, fused), matmul precision, cudnn.benchmark …; `ended_by` is what ended the training before analyse()."""

    @property
    def is_trace(self) -> bool:
        """Say whether this is what a trace holds, of another profiler or of a few steps: there is no more to judge by."""
        return self.state == "imported" and not self.recorded_whole


M = TypeVar("M", RunManifest, RankManifest)
_NESTED: dict[str, type] = {
    "devices": Device,
    "loaders": Loader,
    "signals": Signal,
    "windows": Window,
    "warnings": Warn,
}


def encode_manifest(manifest: RunManifest | RankManifest) -> str:
    """Return the manifest as indented JSON with a final newline."""
    return json.dumps(dataclasses.asdict(manifest), indent=1, ensure_ascii=False) + "\n"


_NONE = type(None)
_PLAIN: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "str": (str,),
    "bool": (bool,),
    "float": (int, float),
    "int | None": (int, _NONE),
    "str | None": (str, _NONE),
    "bool | None": (bool, _NONE),
    "float | None": (int, float, _NONE),
    "dict[str, Any]": (dict,),
    "RunState": (str,),
    "Source": (str,),
    "SignalState": (str,),
    "Literal['map', 'iterable']": (str,),
}
_LEAST = -(1 << 63)


def decode_manifest(kind: type[M], text: str, where: str) -> M:
    """Read a manifest of that kind. `where` is the file, for messages.

    Unknown keys are ignored, so that an older reader opens a run with more in it. Raises NewerSchemaError when the
    run's format is newer than this reader, TableBrokenError when the text is no such manifest.
    """
    try:
        raw = json.loads(text)
        version = raw.get("schema_version", SCHEMA_VERSION)
    except (ValueError, AttributeError, RecursionError) as error:
        raise TableBrokenError(
            f"{where} is not a manifest ({_explain(error)}); run `{spell_recovery(Path(where))}`"
        ) from None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"{where} has format version {version}, this Stepscope reads up to {SCHEMA_VERSION}; "
            "upgrade Stepscope to open it"
        )
    missing = [name for name in _required_names(kind) if name not in raw]
    if missing:
        raise TableBrokenError(f"{where} lacks {', '.join(missing)}; run `{spell_recovery(Path(where))}`")
    try:
        check_kinds(kind, raw)
        return kind(**{name: _decode_field(name, value) for name, value in raw.items() if name in _field_names(kind)})
    except (TypeError, AttributeError):
        raise TableBrokenError(
            f"{where} holds a value of the wrong kind; run `{spell_recovery(Path(where))}`"
        ) from None


def _explain(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error) if isinstance(error, ValueError) else "it holds no JSON object"


def check_kinds(kind: type, raw: dict[str, Any]) -> None:
    """Raise TypeError for a plain field that holds something else, or a number that no table could hold."""
    for entry in dataclasses.fields(kind):
        allowed = _PLAIN.get(str(entry.type))
        if allowed is None or entry.name not in raw:
            continue
        value = raw[entry.name]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            raise TypeError(entry.name)
        if isinstance(value, int) and not _LEAST <= value <= -_LEAST - 1:
            raise TypeError(entry.name)


def _required_names(kind: type) -> list[str]:
    """Return the names of the fields without a default."""
    unset = dataclasses.MISSING
    fields = dataclasses.fields(kind)
    return [entry.name for entry in fields if entry.default is unset and entry.default_factory is unset]


def _field_names(kind: type) -> set[str]:
    return {entry.name for entry in dataclasses.fields(kind)}


def _decode_field(name: str, value: Any) -> Any:
    if name in _NESTED:
        nested = _NESTED[name]
        names = _field_names(nested)
        return tuple(nested(**{key: item for key, item in entry.items() if key in names}) for entry in value)
    if name == "overhead":
        return Overhead(**{key: item for key, item in value.items() if key in _field_names(Overhead)})
    if name == "argv":
        return tuple(value)
    return value
