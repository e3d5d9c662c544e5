"""A run without the names that its owner gave: what is safe to hand to a stranger.

Names are exchanged where they are read, so that nothing that is made from them can hold them: the host, the script,
the run, data sets, modules, transforms, the user's own stages, queues, ranges and operators, call stacks and reasons.
What stays are the names of PyTorch, CUDA and the libraries below them, shapes, devices, versions and all figures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from collector.format.run import Run
from collector.format.schema.manifest import Loader, RankManifest, RunManifest, Signal, Warn
from collector.format.words import QUEUES, STAGES

_PUBLIC = re.compile(
    r"(aten|c10|c10d|prims|quantized|torch|torchvision|autograd|nccl|gloo|cuda|cudnn|cublas|mkldnn|onednn|record_param_comms)"
    r"([:._]|$)|Optimizer\.|enumerate\(DataLoader\)|ProfilerStep|Mem(cpy|set)\b|(void |std::)?(at|cutlass|cub|thrust)::|"
    r"(ampere|volta|turing|sm\d+|cudnn|triton)_|nvjet|_foreach_|\w+Backward\d+$|\(no operator: ",
)
"""Beginnings of names that everybody has."""
_KEPT: Mapping[str, frozenset[str]] = {
    "stage": frozenset(STAGES),
    "queue": frozenset(QUEUES),
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
    ("stacks", "stack"): "",
    ("compiles", "name"): "function",
    ("compiles", "reason"): "",
    ("memory", "operator"): "operator",
    ("memory", "module"): "module",
    ("slices", "name"): "slice",
    ("slices", "operator"): "operator",
    ("slices", "args"): "",
    ("tracks", "name"): "track",
    ("tracks", "process"): "process",
    ("collectives", "name"): "collective",
    ("collectives", "group"): "group",
    ("flight", "place"): "place",
    ("communicators", "process"): "process",
}
"""Column with names of the user's -> what such a name is called instead, empty for one that is left out."""


_LEFT_OUT = ("ended_by", "group_labels")
_STACK, _MOMENT = "stack", "moment"


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

    def redact_run(self, manifest: RunManifest) -> RunManifest:
        options = {name: value for name, value in manifest.options.items() if name != "baseline"}
        shown = replace(manifest, id="run", name="run", host="host", script="script.py", argv=(), launch_id="")
        return replace(shown, options=options)

    def redact_rank(self, manifest: RankManifest) -> RankManifest:
        return replace(
            manifest,
            host="host",
            loaders=tuple(self._hide_dataset(loader) for loader in manifest.loaders),
            forward_start=self.rename(manifest.forward_start, "module"),
            backward_end=self.rename(manifest.backward_end, "module"),
            signals=tuple(Signal(signal.name, signal.state) for signal in manifest.signals),
            warnings=tuple(Warn(warning.code, f"{warning.code}: left out") for warning in manifest.warnings),
            facts={
                name: _hide_labels(fact) if name == _MOMENT else _hide_stack(fact)
                for name, fact in manifest.facts.items()
                if name not in _LEFT_OUT
            },
        )

    def _hide_dataset(self, loader: Loader) -> Loader:
        return replace(loader, dataset=self.rename(loader.dataset, "data set") or "data set")

    def redact_table(self, name: str, table: pa.Table) -> pa.Table:
        for (owner, column), kind in _COLUMNS.items():
            if owner == name and column in table.column_names:
                at = table.schema.get_field_index(column)
                table = table.set_column(at, table.schema.field(at), self.rename_column(table[column], kind))
        return table


def _hide_stack(fact: Any) -> Any:
    """Leave out where in the script a thread stands still."""
    if isinstance(fact, list):
        return [_hide_stack(entry) for entry in fact]
    return {**fact, _STACK: ""} if isinstance(fact, dict) and _STACK in fact else fact


def _hide_labels(moment: Any) -> Any:
    """Leave out what the process groups of a rank are for."""
    told = moment.get("groups") if isinstance(moment, dict) else None
    if not isinstance(told, list):
        return moment
    return {**moment, "groups": [{**entry, "label": ""} for entry in told if isinstance(entry, dict)]}


def redact(run: Run) -> Run:
    """Return the run without the user's names: all of its ranks by one list of other names."""
    return Run(run.path, Redactor())
