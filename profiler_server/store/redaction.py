"""A run without the names that its owner gave, so that the run can be handed to a stranger.

Texts are replaced as they are read, so no result can contain an original text. The declaration of each column, field or
fact decides which texts stay (`collector/format/schema/columns.py`). Undeclared texts are left out. Figures stay, and
so do public names: those of PyTorch and of the libraries that it uses (`profiler_server/store/vocabulary`).
"""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from collector.format.run import Run
from collector.format.schema.columns import LEFT_OUT, Column, Shown, read_shown
from collector.format.schema.facts import FACTS
from collector.format.schema.manifest import RankManifest, RunManifest
from collector.format.schema.tables import TABLES
from profiler_server.store.vocabulary import (
    exchange_annotation,
    exchange_error,
    exchange_kernel,
    exchange_name,
    split_words,
)

_NUMBER = re.compile(r"[0-9]+")
_FACTS = {fact.name: fact.shown for fact in FACTS}
_EXCHANGES = {
    "annotations": exchange_annotation,
    "torch": exchange_name,
    "kernels": exchange_kernel,
    "errors": exchange_error,
}
R = TypeVar("R")


class Redactor:
    """A replacer of names. A name has the same replacement wherever it occurs."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._public: dict[Shown, tuple[frozenset[str], frozenset[str]]] = {}

    def show(self, text: str | None, what: Shown) -> str | None:
        """Return a text as its declaration `what` lets it be shown; None if it is left out, or if `text` is None."""
        if what.is_json and text:
            return self._show_json(text, replace(what, is_json=False))
        if not text or self._is_public(text, what):
            return text
        if what.separator and what.separator in text:
            pieces = (self.show(piece, replace(what, separator="")) for piece in text.split(what.separator))
            return what.separator.join(piece or "" for piece in pieces)
        exchange = _EXCHANGES.get(what.names)
        found = exchange(text, self._rename) if exchange is not None else None
        if found is not None:
            return found
        return self._rename(what.alias, text) if what.alias else None

    def _is_public(self, text: str, what: Shown) -> bool:
        """Return whether a text is in `what.words`, whatever its numbers are, or has no words but those in
        `what.letters`.
        """
        if what not in self._public:
            words = frozenset(_NUMBER.sub("0", word) for word in what.words)
            self._public[what] = words, frozenset(what.letters or ())
        words, letters = self._public[what]
        if _NUMBER.sub("0", text) in words:
            return True
        return what.letters is not None and text.isascii() and split_words(text) <= letters

    def _show_json(self, text: str, what: Shown) -> str | None:
        try:
            found = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        return msgspec.json.encode(self._redact_json(found, what)).decode() if isinstance(found, dict) else None

    def _rename(self, kind: str, name: str) -> str:
        if name not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[name] = f"{kind} {self._counts[kind]}"
        return self._names[name]

    def redact_run(self, manifest: RunManifest) -> RunManifest:
        return self._redact_record(manifest)

    def redact_rank(self, manifest: RankManifest) -> RankManifest:
        shown = self._redact_record(manifest)
        return replace(
            shown,
            warnings=tuple(replace(warning, text=f"{warning.code}: left out") for warning in shown.warnings),
            facts={
                name: self._redact_json(fact, _FACTS[name]) for name, fact in manifest.facts.items() if name in _FACTS
            },
        )

    def redact_table(self, name: str, table: pa.Table) -> pa.Table:
        declared = {column.name: column for column in TABLES[name].columns}
        for at, field in enumerate(table.schema):
            if pa.types.is_string(field.type) or pa.types.is_dictionary(field.type):
                table = table.set_column(at, field, self._redact_column(table[field.name], declared.get(field.name)))
        return table

    def _redact_column(self, texts: pa.ChunkedArray, column: Column | None) -> pa.ChunkedArray:
        what = (column.shown if column else None) or LEFT_OUT
        encoded = texts.cast(pa.string()).combine_chunks().dictionary_encode()
        shown = [self.show(text, what) for text in encoded.dictionary.to_pylist()]
        names = pa.array(shown if column is None or column.nullable else [text or "" for text in shown], pa.string())
        return pa.chunked_array([names.take(encoded.indices)]).cast(texts.type)

    def _redact_record(self, record: R) -> R:
        changed = {entry.name: read_shown(entry.metadata) or LEFT_OUT for entry in fields(record)}  # type: ignore[arg-type]
        values = {name: self._redact_value(getattr(record, name), what) for name, what in changed.items()}
        return replace(record, **values)  # type: ignore[type-var]

    def _redact_value(self, value: Any, what: Shown) -> Any:
        if is_dataclass(value):
            return self._redact_record(value)
        if isinstance(value, tuple):
            entries = [self._redact_value(entry, what) for entry in value]
            return tuple(entry for entry in entries if entry != "")
        return self._redact_json(value, what)

    def _redact_json(self, value: Any, what: Shown) -> Any:
        """Return a JSON value with its texts replaced. If a key is left out, the value of the key is left out, too."""
        if isinstance(value, str):
            return self.show(value, what) or ""
        if isinstance(value, list):
            return [self._redact_json(entry, what) for entry in value]
        if not isinstance(value, dict):
            return value
        below = replace(what, alias="", words=(), letters=None, names="")
        shown = ((self.show(key, what), key, entry) for key, entry in value.items())
        return {
            name: self._redact_json(entry, below if key in what.left_out else what)
            for name, key, entry in shown
            if name is not None
        }


def redact(run: Run) -> Run:
    """Return the run without the names that the user gave. A name has the same replacement in all ranks."""
    return Run(run.path, Redactor())
