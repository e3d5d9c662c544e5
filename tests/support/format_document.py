"""Make docs/reference/format.md from the declarations: `python -m tests.support.format_document docs/reference/format.md`."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from pathlib import Path

from collector.format.phases import PHASES
from collector.format.schema import manifest
from collector.format.schema.columns import SCHEMA_VERSION, Table
from collector.format.schema.facts import FACTS
from collector.format.schema.tables import TABLES

_HEAD = """# The format of a run

Format version {version}. This page is made from the declarations in `collector/format/schema`
(`python -m tests.support.format_document docs/reference/format.md`); a test fails when it is stale.

A run is a directory that holds `profiler/`:

```
<output_path>/profiler/run.json                          what the run is
<output_path>/profiler/rank_<r>/rank.json                how one rank fared, rewritten while it records
<output_path>/profiler/rank_<r>/<table>.parquet          a table, or
<output_path>/profiler/rank_<r>/<table>/<part>.parquet   its parts in time order while the run records
<output_path>/profiler/rank_<r>/events/                  what is not yet in tables
<output_path>/earlier/<created>/profiler/                a run that a later one in the same place set aside
```

Times are integers in nanoseconds since the run's epoch, `epoch_unix_ns` of run.json. A share is a fraction of 1.
A reader ignores what it does not know, takes a nullable column that is not there as null, and refuses a run whose
format version is newer than its own. `category` is a string that Parquet stores with a dictionary.
"""


def build_document() -> str:
    sections = [_HEAD.format(version=SCHEMA_VERSION), _describe_phases()]
    sections += [_describe_table(table) for table in TABLES.values()]
    kinds = (manifest.RunManifest, manifest.RankManifest, manifest.Loader, manifest.Signal, manifest.Window)
    sections += [_describe_manifest(kind) for kind in (*kinds, manifest.Overhead, manifest.Device, manifest.Warn)]
    return "\n".join([*sections, _describe_facts()])


def _describe_facts() -> str:
    rows = [f"| `{fact.name}` | {fact.meaning} |" for fact in FACTS]
    head = ["## Facts of a rank", "", "What `facts` of `RankManifest` may hold. Each may be absent.", ""]
    return "\n".join([*head, "| name | holds |", "|---|---|", *rows, ""])


def _describe_phases() -> str:
    rows = [f"| `{phase.name}` | {phase.label} | {phase.meaning} |" for phase in PHASES]
    return "\n".join(["## Phases", "", "| name | label | meaning |", "|---|---|---|", *rows, ""])


def _describe_table(table: Table) -> str:
    lines = [f"## Table `{table.name}`", "", table.meaning]
    if table.option:
        lines += ["", f"Switched off by the option `{table.option}`."]
    lines += ["", "| column | dtype | unit | null | meaning |", "|---|---|---|---|---|"]
    for c in table.columns:
        lines.append(f"| `{c.name}` | {c.dtype} | {c.unit} | {'yes' if c.nullable else ''} | {c.meaning} |")
    return "\n".join([*lines, ""])


def _describe_manifest(kind: type) -> str:
    lines = [f"## `{kind.__name__}`", "", inspect.cleandoc(kind.__doc__ or ""), "", "| key | type |", "|---|---|"]
    lines += [f"| `{entry.name}` | {str(entry.type).replace('|', 'or')} |" for entry in dataclasses.fields(kind)]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    (Path("docs/reference") / Path(sys.argv[1]).name).write_text(build_document(), encoding="utf-8")
