"""What is not known is not 0: whoever reads a column that can be null says what stands for null."""

from __future__ import annotations

import ast

from collector.format.schema.tables import TABLES
from tests.contract.test_rooms import list_modules


def list_nullable() -> set[str]:
    """Return the columns that can be null in the table of the steps, or in each table that has them."""
    declared = [column for table in TABLES.values() for column in table.columns]
    certain = {column.name for column in declared if not column.nullable}
    steps = {column.name for column in TABLES["steps"].columns if column.nullable}
    return {column.name for column in declared} - certain | steps


def test_whoever_reads_a_column_that_can_be_null_says_what_null_is() -> None:
    nullable, silent = list_nullable(), []
    for module, path in list_modules():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "read_integers" and len(node.args) == 2:
                column = ast.unparse(node.args[1]).strip("'")
                silent += [f"{module}:{node.lineno} {column}"] if column in nullable and not node.keywords else []
    assert {"samples", "batch", "cpu_ns"} <= nullable
    assert silent == []
