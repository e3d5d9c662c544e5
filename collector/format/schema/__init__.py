"""The declarations of a run directory: tables, manifests, paths, errors.

Every other package depends on this one, so it imports only the standard library, msgspec, `phases` and `words`.
"""

from collector.format.phases import PHASES, Phase
from collector.format.schema.columns import SCHEMA_VERSION, Column, Table
from collector.format.schema.errors import StepscopeError
from collector.format.schema.manifest import RankManifest, RunManifest
from collector.format.schema.tables import TABLES

__all__ = [
    "PHASES",
    "SCHEMA_VERSION",
    "TABLES",
    "Column",
    "Phase",
    "RankManifest",
    "RunManifest",
    "StepscopeError",
    "Table",
]
