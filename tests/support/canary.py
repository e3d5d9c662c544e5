"""A run with a word in every text of every table and manifest that nobody has: where it shows, a name was not redacted."""

from __future__ import annotations

import base64
import dataclasses
import html
import re
import types
import typing
import urllib.parse
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pyarrow as pa

from collector.format import parts
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.facts import FACTS
from collector.format.schema.manifest import encode_manifest
from collector.format.schema.tables import TABLES
from collector.format.stored_files import arrow_schema

CANARY = "Zqxjkv"
FORMS = (
    "{c}",
    "aten::{c}",
    "torch.{c}",
    "Optimizer.step#{c}.step",
    "Optimizer.zero_grad#{c}.zero_grad",
    "autograd::engine::evaluate_function: {c}",
    "autograd::engine::evaluate_function: {c}Backward",
    "{c}Backward0",
    "void at::native::k<{c}::X>(int)",
    "at::native::{c}",
    "void {c}(float*)",
    "triton_poi_fused_{c}_0",
    "sm80_{c}_gemm",
    "ampere_{c}",
    "nccl:{c}",
    "enumerate(DataLoader)#_{c}.__next__",
    "ProfilerStep#{c}",
    "Memcpy {c}",
    "Memset ({c})",
    "(no operator: {c})",
    "nn.Module: {c}_0",
    "/home/{c}/train.py(3): f",
    "train.py:88 in {c}",
    "step/{c}/x",
    "worker {c}",
    "step {c}",
    '[["{c}"]]',
    '{{"a": "{c}"}}',
    "2.13.0+{c}",
    "NVIDIA {c}",
    "ü{c}",
)
"""Texts that begin or end as public ones do."""
_ROWS = 2 * len(FORMS)


def make_texts(prefix: str = "") -> Iterator[str]:
    """Yield texts without end, each with the canary, no two alike."""
    for form, number in zip(cycle(FORMS), count()):
        yield prefix + form.format(c=f"{CANARY}{chr(97 + number % 26)}{chr(97 + number // 26 % 26)}")


def plant(path: Path) -> None:
    """Put canaries into a run: into every second text of a table that is there, and into tables of their own elsewhere."""
    run = open_run(path)
    for rank in run.ranks:
        for name in TABLES:
            _plant_table(run.rank(rank).folder, name)
        manifest = run.rank(rank).manifest
        layout.rank_file(path, rank).write_text(encode_manifest(_plant_record(manifest, make_texts())), "utf-8")
    layout.run_file(path).write_text(encode_manifest(_plant_record(run.manifest, make_texts())), "utf-8")


def _plant_table(folder: Path, name: str) -> None:
    table = parts.read_table(folder, name) if parts.find_files(folder, name) else _make_rows(name)
    for at, field in enumerate(table.schema):
        if TABLES[name].column(field.name).dtype in ("string", "category"):
            texts = make_texts()
            kept = table[field.name].cast(pa.string()).to_pylist()
            values = [next(texts) if row % 2 else text for row, text in enumerate(kept)]
            table = table.set_column(at, field, pa.chunked_array([pa.array(values, pa.string())]).cast(field.type))
    for file in parts.find_files(folder, name):
        file.unlink()
    parts.write_table(table, layout.table_file(folder, name))


def _make_rows(name: str) -> pa.Table:
    columns = {}
    for field, column in zip(arrow_schema(name), TABLES[name].columns, strict=True):
        texts = make_texts()
        is_text = column.dtype in ("string", "category")
        values = [next(texts) if is_text else row % 2 == 0 if column.dtype == "bool" else row for row in range(_ROWS)]
        columns[field.name] = pa.chunked_array([pa.array(values)]).cast(field.type)
    return pa.table(columns, arrow_schema(name))


def _plant_record(record: Any, texts: Iterator[str]) -> Any:
    """Return a manifest, or a part of one, with canaries in all of its texts but those of which the type is a choice."""
    hints = typing.get_type_hints(type(record))
    return type(record)(
        **{
            f.name: _plant_value(f.name, hints[f.name], getattr(record, f.name), texts)
            for f in dataclasses.fields(record)
        }
    )


def _plant_value(name: str, hint: Any, value: Any, texts: Iterator[str]) -> Any:
    kinds = set(typing.get_args(hint)) if isinstance(hint, types.UnionType) else {hint}
    if str in kinds:
        return next(texts)
    if typing.get_origin(hint) is tuple:
        kind = typing.get_args(hint)[0]
        return (
            (next(texts), next(texts))
            if kind is str
            else tuple(_plant_record(e, texts) for e in value or [_make_record(kind, texts)])
        )
    if name == "facts":
        return {fact.name: _plant_fact(fact, texts) for fact in FACTS} | {next(texts): next(texts)}
    if typing.get_origin(hint) is dict:
        return {next(texts): next(texts), "level": next(texts), "window": {next(texts): [next(texts)]}}
    return _plant_record(value, texts) if dataclasses.is_dataclass(value) else value


def _make_record(kind: Any, texts: Iterator[str]) -> Any:
    hints = typing.get_type_hints(kind)
    empty = [f for f in dataclasses.fields(kind) if f.default is f.default_factory is dataclasses.MISSING]
    made = {f.name: _make_plain(hints[f.name], texts) for f in empty}
    return kind(**made)


def _make_plain(hint: Any, texts: Iterator[str]) -> Any:
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)[0]
    return next(texts) if hint is str else 0


def _plant_fact(fact: Any, texts: Iterator[str]) -> Any:
    keys = [*getattr(getattr(fact, "shown", None), "words", ()), "name", "stack", "label", "group", "text"]
    flat = {key: next(texts) for key in keys} | {next(texts): next(texts)}
    return {**flat, "groups": [flat, next(texts)], "next": flat, next(texts): {next(texts): [next(texts)]}}


def find_canaries(text: str) -> list[str]:
    """Return where the canary stands in a text, however it is escaped or packed."""
    seen = [text, html.unescape(text), urllib.parse.unquote(text)]
    seen += [
        base64.b64decode(part).decode("utf-8", "replace") for part in re.findall(r"base64,([A-Za-z0-9+/=]+)", text)
    ]
    spots = [
        each[max(at.start() - 60, 0) : at.end() + 40]
        for each in seen
        for at in re.finditer(CANARY, each, re.IGNORECASE)
    ]
    return list(dict.fromkeys(spots))
