"""The mutants of a module: its syntax tree, with one operator, constant, bound or call changed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CALLS = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "cumsum": "cumprod", "ceil": "floor"}


@dataclass(frozen=True)
class Mutant:
    """`source` is the whole module with the change; `before` and `after` are the piece that is changed."""

    path: str
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {self.before}  ->  {self.after}"


def list_mutants(path: str, source: str) -> list[Mutant]:
    """Return every mutant of a module in the order of its lines. Texts and types are left alone."""
    tree = ast.parse(source)
    skipped = set(_list_skipped(tree))
    found: list[Mutant] = []
    for node in ast.walk(tree):
        if node in skipped or not isinstance(node, ast.expr):
            continue
        found += [_build(path, source, node, changed) for changed in _change(node)]
    return sorted(found, key=lambda mutant: mutant.line)


def _change(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            ops = [*node.ops[:index], _COMPARISONS[type(operator)](), *node.ops[index + 1 :]]
            yield ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_text(node):
        yield ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield node.operand
    elif isinstance(node, ast.Constant):
        yield from map(ast.Constant, _change_constant(node.value))
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    elif isinstance(node, ast.Call):
        yield from _change_call(node)


def _change_constant(value: object) -> Iterator[bool | int | float]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        if value in (0, 1):
            yield 1 - value
        if value == 1:
            yield value + 1
        if value not in (0, 1):
            # One less of a billion nanoseconds is no other limit.
            yield value - 1 if value >= 2 and (isinstance(value, int) or value < 1000) else value * 0.5
            yield value * 2


def _change_call(node: ast.Call) -> Iterator[ast.expr]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in _CALLS:
        other = _CALLS[name]
        function = (
            ast.Attribute(node.func.value, other, ast.Load())
            if isinstance(node.func, ast.Attribute)
            else ast.Name(other, ast.Load())
        )
        yield ast.Call(function, node.args, node.keywords)
    if "subtract" in name and node.args:
        yield node.args[0]


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in sides
    )


def _list_skipped(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what is no behaviour: annotations, decorators, messages of errors, texts with their inner parts."""
    for node in ast.walk(tree):
        inner: list[ast.AST | None] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = [node.returns, *node.decorator_list]
        elif isinstance(node, ast.ClassDef):
            inner = [*node.decorator_list]
        elif isinstance(node, ast.arg | ast.AnnAssign):
            inner = [node.annotation]
        elif isinstance(node, ast.Raise):
            inner = [node.exc]
        elif isinstance(node, ast.JoinedStr):
            inner = [node]
        elif isinstance(node, ast.Assign) and _is_alias(node):
            inner = [node.value]
        for part in inner:
            if part is not None:
                yield from ast.walk(part)


def _is_alias(node: ast.Assign) -> bool:
    """Whether a type gets a name here: `Edges = tuple[Ints, Ints]`."""
    return isinstance(node.value, ast.Subscript | ast.BinOp) and all(
        isinstance(target, ast.Name) and target.id[:1].isupper() and not target.id.isupper() for target in node.targets
    )


def _build(path: str, source: str, node: ast.expr, changed: ast.expr) -> Mutant:
    lines = source.encode().splitlines(keepends=True)  # columns count bytes
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: (node.end_lineno or 0) - 1])) + (node.end_col_offset or 0)
    text = source.encode()
    after = ast.unparse(ast.fix_missing_locations(changed))
    before = ast.unparse(node)
    whole = text[:start] + f"({after})".encode() + text[end:]
    return Mutant(path, node.lineno, before, after, whole.decode())
