"""The contract of a run directory: tables, manifest, phases, errors.

May import the standard library only. Must not import any other room: every other room depends on this one.
"""

from collector.schema.columns import Column, Table
from collector.schema.errors import StepscopeError
from collector.schema.manifest import RankManifest, RunManifest
from collector.schema.phases import PHASES, Phase
from collector.schema.tables import TABLES
from collector.schema.version import SCHEMA_VERSION

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
