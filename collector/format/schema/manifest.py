"""Declare, write and read the manifests: `profiler/run.json` describes the run, `rank_<r>/rank.json` one rank."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import msgspec

from collector.format.schema.columns import DEVICE, LEFT_OUT, SCHEMA_VERSION, VERSION, Shown, shown
from collector.format.schema.errors import NewerSchemaError, TableBrokenError
from collector.format.schema.layout import advise_on_manifest
from collector.format.switches import SWITCHES
from collector.format.words import SIGNALS, SOURCES, TRIGGERS, WARNINGS

RunState = Literal["recording", "complete", "crashed", "imported"]
SignalState = Literal["on", "off", "failed", "unavailable"]


_START_METHOD = Shown("method", words=("fork", "spawn", "forkserver"))
_OPTIONS = Shown(
    words=(
        *("window", "first", "count", "data_pipeline", "memory", "resources", "stacks", "triggers"),
        *("level", "debug", "info", "important", "activities", "cpu", "device", "keep_events"),
    ),
)


@dataclass(frozen=True)
class Device:
    """One accelerator, as the driver describes it."""

    index: int
    name: str = field(metadata=shown(DEVICE))
    kind: str = field(default="cuda", metadata=shown(DEVICE))
    memory_bytes: int | None = None
    multiprocessors: int | None = None
    compute_capability: str | None = field(default=None, metadata=shown(DEVICE))


@dataclass(frozen=True)
class Loader:
    """One DataLoader of the run, with the arguments that advice refers to. `id` is the `loader` column.

    `remade` is the number of similar DataLoaders that the script made later in place of this one. `watched` marks an
    iterable given to `stepscope.watch`: such a loader is no DataLoader, so DataLoader arguments are unknown. For a
    watched iterable, `cpu_frac` is the share of the time in `next()` during which the training thread was on a
    processor. `reads_ahead` is true if the thread mostly waited in `next()` and other threads or processes existed that
    may make the items.
    """

    id: int
    dataset: str = field(metadata=shown(Shown("data set")))
    style: Literal["map", "iterable"] = field(metadata=shown(Shown(words=("map", "iterable"))))
    batch_size: int | None = None
    num_workers: int = 0
    prefetch_factor: int | None = None
    pin_memory: bool = False
    persistent_workers: bool = False
    in_order: bool = True
    shuffle: bool | None = None
    length_batches: int | None = None
    start_method: str | None = field(default=None, metadata=shown(_START_METHOD))
    remade: int = 0
    watched: bool = False
    cpu_frac: float | None = None
    reads_ahead: bool | None = None


@dataclass(frozen=True)
class Signal:
    """The state of one kind of recorded data. `reason` is why it is off, failed or unavailable, and what helps."""

    name: str = field(metadata=shown(Shown("signal", words=SIGNALS)))
    state: SignalState = field(metadata=shown(Shown(words=get_args(SignalState))))
    reason: str = field(default="", metadata=shown(LEFT_OUT))


@dataclass(frozen=True)
class Overhead:
    """The cost of recording, measured in the run itself. `how` describes the measurement.

    `share_frac` is relative to the mean step on the run's pages and reports. In 95 of 100 runs, the cost lies between
    the values of the `low` and `high` fields.
    """

    training_thread_ns_per_step: float | None = None
    share_frac: float | None = None
    how: str = field(default="", metadata=shown(LEFT_OUT))
    window_stall_ns: int = 0
    sidecar_cpu_frac: float | None = None
    training_thread_low_ns_per_step: float | None = None
    training_thread_high_ns_per_step: float | None = None


@dataclass(frozen=True)
class Window:
    """One detailed window: the steps `first_step` to `last_step`, both included, recorded with torch.profiler.
    `stall_ns` is the time that opening and saving cost.

    The recorder read the window's trace from `read_start_ns` to `read_end_ns`; both are 0 if the training had ended.
    """

    first_step: int
    last_step: int
    start_ns: int
    end_ns: int
    stall_ns: int = 0
    trigger: str = field(default="option", metadata=shown(Shown("trigger", words=TRIGGERS)))
    trace_file: str | None = field(default=None, metadata=shown(LEFT_OUT))
    read_start_ns: int = 0
    read_end_ns: int = 0


@dataclass(frozen=True)
class Warn:
    """A warning for readers of the run. `code` is stable; `text` names the problem and what to do."""

    code: str = field(metadata=shown(Shown("warning", words=WARNINGS)))
    text: str = field(metadata=shown(LEFT_OUT))


@dataclass(frozen=True)
class RunManifest:
    """`run.json`. Every time in the run is in ns since `epoch_unix_ns`.

    `source` is `collector` if Stepscope recorded the run, else the format of the imported traces, such as `kineto`;
    versions up to 0.5.0 wrote `kineto` for every format.

    If a launcher starts a job again, the new run has the same `job_id` and the next `attempt`. `job_id` is empty if no
    launcher names the job. `requeues` counts how often SLURM had requeued the job, `restarts` how often torchrun had
    restarted the job since the last requeue.
    """

    id: str = field(metadata=shown(Shown("run")))
    name: str = field(metadata=shown(Shown("run")))
    created_unix_ns: int
    epoch_unix_ns: int
    source: str = field(metadata=shown(Shown("format", words=SOURCES)))
    world_size: int
    host: str = field(metadata=shown(Shown("host")))
    schema_version: int = SCHEMA_VERSION
    stepscope: str = field(default="", metadata=shown(VERSION))
    python: str = field(default="", metadata=shown(VERSION))
    torch: str | None = field(default=None, metadata=shown(VERSION))
    cuda: str | None = field(default=None, metadata=shown(VERSION))
    launch_id: str = field(default="", metadata=shown(LEFT_OUT))
    job_id: str = field(default="", metadata=shown(LEFT_OUT))
    attempt: int = 1
    requeues: int = 0
    restarts: int = 0
    script: str = field(default="", metadata=shown(Shown("script")))
    argv: tuple[str, ...] = field(default=(), metadata=shown(LEFT_OUT))
    options: dict[str, Any] = field(default_factory=dict, metadata=shown(_OPTIONS))
    metadata: dict[str, Any] = field(default_factory=dict, metadata=shown(LEFT_OUT))

    @property
    def is_imported(self) -> bool:
        return self.source != "collector"


@dataclass(frozen=True)
class RankManifest:
    """`rank_<r>/rank.json`, rewritten while the rank records. `heartbeat_unix_ns` is the time of the last rewrite.

    `recorded_whole` marks an import that holds everything that Stepscope recorded. Such an import is judged like the
    run itself. `recorded_until_ns` is the end of the last step in the tables, or of work after it. `flush_s` is the
    interval between writes of the tables.
    """

    rank: int
    host: str = field(metadata=shown(Shown("host")))
    pid: int
    state: RunState = field(metadata=shown(Shown(words=get_args(RunState))))
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
    forward_start: str | None = field(default=None, metadata=shown(Shown("module")))
    backward_end: str | None = field(default=None, metadata=shown(Shown("module", words=("autograd engine",))))
    point_source: str | None = field(default=None, metadata=shown(Shown("source", words=("automatic", "environment"))))
    cpu_count: int | None = None
    usable_cores: float | None = None
    torch_threads: int | None = None
    recorded_whole: bool = False
    flush_s: float | None = None
    recorded_until_ns: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """Settings for rules: parameters, optimizers (name, foreach, fused), matmul precision, cudnn.benchmark …;
    `ended_by` is the reason if the training ended before analyse()."""

    @property
    def switched(self) -> dict[str, str]:
        """The switches of PyTorch that the script has changed, each with the line that changes it back."""
        return {each.name: each.code for each in SWITCHES if self.facts.get(each.name) is (not each.usual)}

    @property
    def is_trace(self) -> bool:
        """Return whether the rank was imported and lacks data that Stepscope records, as other profilers' traces do."""
        return self.state == "imported" and not self.recorded_whole


_NO_TEXT = re.compile("[\ud800-\udfff]")
M = TypeVar("M", RunManifest, RankManifest)


def encode_manifest(manifest: RunManifest | RankManifest) -> str:
    """Return the manifest as indented JSON with a final newline. Bytes that are not UTF-8 are escaped."""
    return encode_text(dataclasses.asdict(manifest), indent=1) + "\n"


def encode_text(value: Any, indent: int | None = None) -> str:
    """Return plain data as JSON. Bytes that are not UTF-8 are escaped, so that every reader accepts the text. An object
    that JSON does not know becomes its `str`."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    return _NO_TEXT.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text)


_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1
_MOST: dict[str, int] = {
    "num_workers": 1 << 16,
    "prefetch_factor": 1 << 16,
    "batch_size": 1 << 32,
    "cpu_count": 1 << 20,
    "usable_cores": 1 << 20,
    "torch_threads": 1 << 20,
}
"""Fields -> the greatest value of any real machine. Larger values are damage and must not be simulated."""


def decode_manifest(kind: type[M], text: str, where: str, is_quoted: bool = True) -> M:
    """Parse a manifest of class `kind`. Messages name the file as `where`; without `is_quoted` they do not quote the
    text.

    Unknown keys are ignored, so that an older reader can open a newer run. Raises NewerSchemaError if the run's format
    is newer than this reader, TableBrokenError if the text is not a valid manifest.
    """
    try:
        raw = json.loads(text)
        version = raw.get("schema_version", SCHEMA_VERSION)
    except (ValueError, AttributeError, RecursionError) as error:
        raise TableBrokenError(f"{where} is damaged ({_explain(error)}); {advise_on_manifest(Path(where))}") from None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"{where} has format version {version}, this Stepscope reads up to {SCHEMA_VERSION}; "
            "upgrade Stepscope to open it"
        )
    missing = [name for name in _required_names(kind) if name not in raw]
    if missing:
        raise TableBrokenError(f"{where} lacks {', '.join(missing)}; {advise_on_manifest(Path(where))}")
    try:
        check_values(raw, "")
        manifest = msgspec.convert(raw, kind)
        _check_counts(manifest)
    except (ValueError, RecursionError) as error:
        damage = f"damaged: {_name_field(error)}" if is_quoted else "damaged"
        raise TableBrokenError(f"{where} is {damage}; {advise_on_manifest(Path(where))}") from None
    return manifest


def _explain(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON from line {error.lineno} on"
    return str(error) if isinstance(error, ValueError) else "it holds no JSON object"


def _required_names(kind: type[M]) -> list[str]:
    unset = dataclasses.MISSING
    fields = dataclasses.fields(kind)
    return [entry.name for entry in fields if entry.default is unset and entry.default_factory is unset]


def check_values(value: Any, where: str) -> None:
    """Raise ValueError if the value holds, at any depth, a number of more than 64 bits or a text that is no valid
    Unicode.

    The message names the value as `where`.
    """
    if isinstance(value, int) and not _LEAST <= value <= _GREATEST:
        raise ValueError(f"{where}: a whole number of more than 64 bits")
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{where}: half of a character") from None
    if isinstance(value, dict):
        for name, inner in value.items():
            check_values(name, where)
            check_values(inner, f"{where}.{name}".lstrip("."))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            check_values(inner, f"{where}[{place}]")


def _check_counts(manifest: RunManifest | RankManifest) -> None:
    entries: list[tuple[str, Any]] = [("", manifest)]
    if isinstance(manifest, RankManifest):
        entries += [(f"loaders[{place}].", loader) for place, loader in enumerate(manifest.loaders)]
    for prefix, entry in entries:
        for name, most in _MOST.items():
            value = getattr(entry, name, None)
            if value is not None and not 0 <= value <= most:
                raise ValueError(f"{prefix}{name}: {value} is not between 0 and {most}")


def _name_field(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    what, _, path = str(error).partition(" - at ")
    field = path.strip("`").removeprefix("$").lstrip(".")
    return f"{field}: {what}" if field else what
