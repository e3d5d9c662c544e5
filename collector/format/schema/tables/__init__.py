"""The tables of a run. Each file of this folder declares some of them as TABLES.

To add a table, declare it in a file here, or add a file. No list names the files.
"""

from __future__ import annotations

import importlib
import pkgutil

from collector.format.schema.columns import Table


def _read_declarations() -> dict[str, Table]:
    files = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    return {table.name: table for table in sorted((t for file in files for t in file.TABLES), key=lambda t: t.name)}


TABLES: dict[str, Table] = _read_declarations()
"""Every table of a run by name."""
