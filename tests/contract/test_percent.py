"""One style of percent in every text for a reader: a space stands before the sign, `3.0 %`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path for package in ("collector", "profiler_server", "stepscope") for path in (ROOT / package).rglob("*.py")
)
TEMPLATES = sorted((ROOT / "frontend/templates").rglob("*.html"))
SCRIPTS = sorted(path for path in (ROOT / "frontend/static/js").rglob("*.js"))
CLOSE = re.compile(r"[\d}]%(?!\()")
NO_TEXT = {
    "profiler_server/figures/strips.py": "lengths of SVG",
    "profiler_server/commands/compare.py": "what one types after --max-slowdown",
}


def list_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the string literals of a module; of an f-string its values as `{}`, with the type of their format."""
    tree = ast.parse(source)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(map(_spell_part, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def _spell_part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    is_share = part.format_spec is not None and ast.unparse(part.format_spec).rstrip("'\"").endswith("%")
    return "{}%" if is_share else "{}"


def find_close_signs(source: str) -> list[str]:
    return [f"{line}: {text[:80]}" for line, text in list_texts(source) if CLOSE.search(text)]


def test_a_sign_without_a_space_is_found() -> None:
    assert find_close_signs('x = f"slower by {share:.0%} of all"')
    assert find_close_signs('x = f"slower by {100 * share}% of all"')
    assert find_close_signs('x = "at least 5% of it"')
    assert find_close_signs('x = "{share:.0%} of it".format(share=0.1)')
    assert not find_close_signs('x = f"slower by {share:.1f} % of all"')


def test_texts_of_the_code_have_a_space_before_the_sign() -> None:
    texts = {name: path.read_text("utf-8") for path in SOURCES if (name := str(path.relative_to(ROOT))) not in NO_TEXT}
    found = {name: find_close_signs(text) for name, text in texts.items() if "%" in text}
    assert {name: signs for name, signs in found.items() if signs} == {}


def test_texts_of_templates_and_scripts_have_a_space_before_the_sign() -> None:
    wrong = []
    for path in TEMPLATES:
        text = re.sub(r"\{%.*?%\}|\{#.*?#\}|<[^>]*>", "", path.read_text("utf-8"), flags=re.DOTALL)
        wrong += [f"{path.name}: {found}" for found in re.findall(r"(?:\d|\}\})%", text)]
    for path in SCRIPTS:
        text = re.sub(r"rgb\([^)]*\)", "", path.read_text("utf-8"))
        wrong += [f"{path.name}: {found}" for found in re.findall(r"[\d}]%", text) if "vendor" not in path.parts]
    assert wrong == []


def test_pages_of_the_documents_have_a_space_before_the_sign() -> None:
    wrong = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if path.name in ("errors.md", "options.md"):  # made of texts that show what one types, such as 3%
            continue
        text = re.sub(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", "", path.read_text("utf-8"), flags=re.DOTALL)
        wrong += [f"{path.name}: {found}" for found in re.findall(r".{0,20}\d%", text)]
    assert wrong == []
