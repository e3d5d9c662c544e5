"""Parquet tables of a run with other columns, other values, or other bytes."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from collector.format import parts
from collector.format.schema import layout
from collector.format.schema.errors import StepscopeError
from collector.format.schema.tables import TABLES
from collector.notebook.run import Run, open_run
from profiler_server.report.building import build_report
from profiler_server.store.sql import connect
from tests.fuzz.asking import LISTS, Bystander, Server, list_addresses
from tests.fuzz.files import choose_form, replaced
from tests.fuzz.frame import Case
from tests.fuzz.mutations import spoil_bytes
from tests.support.panorama import PANORAMA
from tests.support.runs import RunPlan, build_run

RUNS = ("rich", "imported", "ranks")
_ASKED = 2
_INTEGERS = (
    *(0, -1, 1, 2, 1 << 24, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 53, 1 << 60, (1 << 61) + 1, 1 << 62, (1 << 63) - 1),
    -(1 << 63),
)
_FLOATS = (0.0, -0.0, -1.0, 1e-300, 1e300, 1e19, float("nan"), float("inf"), float("-inf"))
_TEXTS = (
    *("", "x", "\x00", "\u202e", "<b>", "work", "read", "train", "eval", "worker_queue", "ProfilerStep#1", "=1+1"),
    *("a\r\nb", "ü" * 5000),
)
Change = Callable[[random.Random, pa.Table, str], pa.Table]


def _replace(data: pa.Table, name: str, values: Any) -> pa.Table:
    return data.set_column(data.schema.get_field_index(name), name, values)


def _retype(chance: random.Random, data: pa.Table, name: str) -> pa.Table:
    rows = data.num_rows
    makers: tuple[Callable[[], pa.Array], ...] = (
        lambda: pa.array([f"text {row}" for row in range(rows)]),
        lambda: pa.array(range(rows), pa.int64()),
        lambda: pa.array([row % 100 for row in range(rows)], pa.int8()),
        lambda: pa.array([(1 << 64) - 1] * rows, pa.uint64()),
        lambda: pa.array([row / 3 for row in range(rows)], pa.float64()),
        lambda: pa.array([row / 3 for row in range(rows)], pa.float32()),
        lambda: pa.array([row % 2 == 0 for row in range(rows)]),
        lambda: pa.array([b"\xff\xfe"] * rows, pa.binary()),
        lambda: pa.array(range(rows), pa.timestamp("ns")),
        lambda: pa.array([[row] for row in range(rows)]),
        lambda: pa.array([{"a": row} for row in range(rows)]),
        lambda: pa.array([f"{row}" for row in range(rows)]).dictionary_encode(),
        lambda: pa.array([f"{row}" for row in range(rows)], pa.large_string()),
        lambda: pa.nulls(rows),
        lambda: pa.array(range(rows), pa.int64()).dictionary_encode(),
    )
    return _replace(data, name, chance.choice(makers)())


def _empty(chance: random.Random, data: pa.Table, name: str) -> pa.Table:
    """Put null into all rows or some."""
    values = data[name].to_pylist()
    few = chance.random() < 0.5
    changed = [None if not few or chance.random() < 0.3 else value for value in values]
    return _replace(data, name, pa.array(changed, data.schema.field(name).type))


def _exaggerate(chance: random.Random, data: pa.Table, name: str) -> pa.Table:
    """Put odd values of the right type into all rows or some."""
    kind = data.schema.field(name).type
    if pa.types.is_integer(kind):
        fitting = [value for value in _INTEGERS if -(1 << kind.bit_width - 1) <= value < 1 << kind.bit_width - 1]
        odd: Any = partial(chance.choice, fitting)
    elif pa.types.is_floating(kind):
        odd = partial(chance.choice, _FLOATS)
    elif pa.types.is_boolean(kind):
        odd = partial(chance.choice, (True, False))
    else:
        odd = partial(chance.choice, _TEXTS)
    share, one = chance.choice((1.0, 0.3, 0.02)), odd()
    same = chance.random() < 0.5
    values = [(one if same else odd()) if chance.random() < share else value for value in data[name].to_pylist()]
    try:
        return _replace(data, name, pa.array(values, kind))
    except (pa.ArrowException, TypeError, OverflowError):
        return data


def _exchange(chance: random.Random, data: pa.Table, name: str) -> pa.Table:
    return _replace(data, name, data[chance.choice(data.column_names)])


def _reorder(chance: random.Random, data: pa.Table, name: str) -> pa.Table:
    rows = list(range(data.num_rows))
    how = chance.choice(("shuffle", "reverse", "double", "few", "none", "one many times"))
    chance.shuffle(rows) if how == "shuffle" else rows.reverse() if how == "reverse" else None
    chosen = {"double": rows * 2, "few": rows[:1], "none": [], "one many times": rows[:1] * 3000}.get(how, rows)
    return data.take(pa.array(chosen, pa.int64()))


_CHANGES: tuple[Change, ...] = (
    _retype,
    _retype,
    _empty,
    _exaggerate,
    _exaggerate,
    _exaggerate,
    _exchange,
    _reorder,
    lambda chance, data, name: data.drop_columns([name]),
    lambda chance, data, name: data.append_column(chance.choice(("odd", name)), pa.nulls(data.num_rows)),
    lambda chance, data, name: data.select(chance.sample(range(data.num_columns), data.num_columns)),
    lambda chance, data, name: data.replace_schema_metadata(
        chance.choice((None, {b"stepscope.schema_version": b"9" * 5000}, {b"stepscope.schema_version": b"\xb2"}))
    ),
)  # fmt: skip


def write_bytes(data: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(data, sink, **options)
    return sink.getvalue()


def mutate_table(chance: random.Random, data: pa.Table) -> bytes:
    """Return a file with faults in its columns, values or bytes."""
    options = {"compression": chance.choice(("zstd", "none", "snappy")), "use_dictionary": chance.random() < 0.5}
    if chance.random() < 0.35:
        return spoil_bytes(chance, write_bytes(data, **options))
    for _ in range(chance.choice((1, 1, 2, 4))):
        names = [name for name in data.column_names if data.column_names.count(name) == 1]
        if names:
            data = chance.choice(_CHANGES)(chance, data, chance.choice(names))
    raw = write_bytes(data, row_group_size=chance.choice((None, 7)), **options)
    return spoil_bytes(chance, raw, 1) if chance.random() < 0.05 else raw


def make_row(table: str) -> pa.Table:
    """Return one row of a table."""
    values = {"string": "x", "category": "x", "bool": True}
    return parts.build_table(table, {column.name: [values.get(column.dtype, 0)] for column in TABLES[table].columns})


class Tables:
    """Shows, opens and exports a run with another table."""

    name = "tables"

    def __init__(self, folder: Path) -> None:
        self.base = folder / "runs"
        for name in RUNS:
            PANORAMA[name](self.base / name)
        build_run(self.base / "other", RunPlan(steps=14))
        self._tables = {(run, table): self._read(run, table) for run in RUNS for table in sorted(TABLES)}
        self._server = Server(self.base)
        self._bystander = Bystander(self._server, self.base, "other")

    def _folder(self, run: str) -> Path:
        return layout.rank_path(self.base / run, 0)

    def _read(self, run: str, table: str) -> pa.Table:
        path = layout.table_file(self._folder(run), table)
        if path.is_file():
            return parts.read_files([path], table)
        parts.write_table(make_row(table).slice(0, 0), path)
        return make_row(table)

    def make(self, chance: random.Random) -> Case:
        run, table = chance.choice(list(self._tables))
        if chance.random() < 0.3:
            run, table = (
                chance.choice(RUNS),
                chance.choice(("steps", "slices", "operators", "kernels", "fetches", "queues", "stages")),
            )
        addresses = chance.sample(list_addresses(run, "other"), _ASKED)
        place = json.dumps([run, table, choose_form(chance), chance.choice(LISTS).format(run=run), *addresses])
        return Case(place, mutate_table(chance, self._tables[run, table]))

    def check(self, case: Case) -> bool:
        run, table, form, *addresses = json.loads(case.place)
        with replaced(layout.table_file(self._folder(run), table), form, case.content):
            answers = [self._server.ask(address) for address in addresses]
            if len(case.content) % 10 == 0:
                self._open(run, table)
        return all(answer.status_code != 409 and "is damaged" not in answer.text for answer in answers)

    def _open(self, run: str, table: str) -> None:
        """Do what scripts and commands do."""
        opened = open_run(self.base / run)
        for ask in (
            lambda: opened.frame(table),
            lambda: build_report(opened),
            opened.print_summary,
            lambda: _query(opened, f"SELECT * FROM {table}"),
            lambda: opened.write_trace(self.base.parent / "out.json"),
        ):
            with contextlib.suppress(StepscopeError, duckdb.Error), contextlib.redirect_stdout(io.StringIO()):
                ask()

    def verify(self) -> None:
        self._bystander.verify()

    def close(self) -> None:
        self._server.close()


def _query(run: Run, query: str) -> None:
    """Fetch rows as the command does, which says in a line that a text is damaged."""
    with contextlib.suppress(UnicodeDecodeError):
        connect(run).execute(query).fetchall()


KIND = Tables
