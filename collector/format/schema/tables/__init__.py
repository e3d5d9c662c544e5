"""One file per table; each declares TABLE. Adding a table is adding a file.

Nothing lists its files by name.
"""

from __future__ import annotations

import importlib
import pkgutil

from collector.format.schema.columns import Table


def _read_declarations() -> dict[str, Table]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    tables = (importlib.import_module(f"{__name__}.{name}").TABLE for name in names)
    return {table.name: table for table in tables}


TABLES: dict[str, Table] = _read_declarations()
"""Every table of a run by name."""
