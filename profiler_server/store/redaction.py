"""A run without the names that its owner gave: what is safe to hand to a stranger.

Names are exchanged where they are read, so that nothing that is made from them can hold them: the host, the script,
the run, data sets, modules, transforms, the user's own stages, queues, ranges and operators, call stacks and reasons.
What stays are the names of PyTorch, CUDA and the libraries below them, shapes, devices, versions and all figures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa
import pyarrow.dataset as ds

from collector.format.run import RankRun, Run
from collector.format.schema.manifest import Loader, RankManifest, RunManifest, Signal, Warn

_PUBLIC = re.compile(
    r"(aten|c10|c10d|prims|quantized|torch|torchvision|autograd|nccl|gloo|cuda|cudnn|cublas|mkldnn|onednn|record_param_comms)"
    r"([:._]|$)|Optimizer\.|enumerate\(DataLoader\)|ProfilerStep|Mem(cpy|set)\b|(void |std::)?(at|cutlass|cub|thrust)::|"
    r"(ampere|volta|turing|sm\d+|cudnn|triton)_|nvjet|_foreach_|\w+Backward\d+$",
)
"""Beginnings of names that everybody has."""
_KEPT: Mapping[str, frozenset[str]] = {
    "stage": frozenset({"read", "transform", "collate", "send", "pin", "h2d", "step"}),
    "queue": frozenset({"worker_queue", "pin_queue"}),
}
_COLUMNS: Mapping[tuple[str, str], str] = {
    ("operators", "name"): "operator",
    ("operators", "module"): "module",
    ("operators", "call_stack"): "",
    ("kernels", "name"): "kernel",
    ("kernels", "operator"): "operator",
    ("stages", "stage"): "stage",
    ("stages", "detail"): "transform",
    ("queues", "queue"): "queue",
    ("ranges", "name"): "range",
    ("ranges", "path"): "range",
    ("compiles", "name"): "function",
    ("compiles", "reason"): "",
    ("memory", "operator"): "operator",
    ("slices", "name"): "slice",
    ("slices", "operator"): "operator",
    ("slices", "args"): "",
    ("tracks", "name"): "track",
    ("tracks", "process"): "process",
    ("collectives", "name"): "collective",
    ("collectives", "group"): "group",
}
"""Column with names of the user's -> what such a name is called instead, empty for one that is left out."""


class Redactor:
    """Gives every name another one, the same each time."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def rename(self, name: str | None, kind: str) -> str | None:
        """Return what stands for a name; None and what is no secret stay."""
        if not name or _PUBLIC.match(name) or name in _KEPT.get(kind, ()):
            return name
        if not kind:
            return None
        if (kind, name) not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[kind, name] = f"{kind} {self._counts[kind]}"
        return self._names[kind, name]

    def rename_column(self, column: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
        encoded = column.cast(pa.string()).combine_chunks().dictionary_encode()
        names = pa.array([self.rename(name, kind) for name in encoded.dictionary.to_pylist()], pa.string())
        return pa.chunked_array([names.take(encoded.indices)]).cast(column.type)


class RedactedRank(RankRun):
    """One rank whose manifest and tables hold no name of the user's."""

    def __init__(self, rank: RankRun, redactor: Redactor) -> None:
        super().__init__(rank.folder.parents[1], rank.rank)
        self._redactor = redactor

    @cached_property
    def manifest(self) -> RankManifest:
        manifest = super().manifest
        rename = self._redactor.rename
        return replace(
            manifest,
            host="host",
            loaders=tuple(self._hide_dataset(loader) for loader in manifest.loaders),
            forward_start=rename(manifest.forward_start, "module"),
            backward_end=rename(manifest.backward_end, "module"),
            signals=tuple(Signal(signal.name, signal.state) for signal in manifest.signals),
            warnings=tuple(Warn(warning.code, f"{warning.code}: left out") for warning in manifest.warnings),
            facts={name: fact for name, fact in manifest.facts.items() if name != "ended_by"},
        )

    def _hide_dataset(self, loader: Loader) -> Loader:
        return replace(loader, dataset=self._redactor.rename(loader.dataset, "data set") or "data set")

    def table(self, name: str, columns: Sequence[str] | None = None, where: ds.Expression | None = None) -> pa.Table:
        table = super().table(name, columns, where)
        for (owner, column), kind in _COLUMNS.items():
            if owner == name and column in table.column_names:
                at = table.schema.get_field_index(column)
                field = table.schema.field(at)
                table = table.set_column(at, field, self._redactor.rename_column(table[column], kind))
        return table


class RedactedRun(Run):
    """A run whose ranks are redacted, all by one list of names."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.path)
        self._redactor = Redactor()

    @cached_property
    def manifest(self) -> RunManifest:
        return replace(super().manifest, id="run", name="run", host="host", script="script.py", argv=(), launch_id="")

    def rank(self, rank: int | None = None) -> RankRun:
        return RedactedRank(super().rank(rank), self._redactor)
