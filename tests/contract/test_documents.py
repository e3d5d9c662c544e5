"""The documents name what is there: rooms of the plan, files and commands that contributors are sent to, links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collector.format.phases import PHASE_NAMES
from collector.format.schema.columns import SCHEMA_VERSION
from collector.format.schema.tables import TABLES
from collector.traces.reading import FORMATS
from profiler_server.diagnosis.judging import find_rules
from tests.support.reference import read_about

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("collector", "profiler_server", "stepscope", "frontend", "tests")
FOREIGN = {"node_modules", "vendor"}
MOST_LINES_A_VERSION = 20


def read_rooms() -> list[Path]:
    """Return what the first column of the tables of rooms names."""
    found, package = [], ""
    for line in (ROOT / "docs/concepts/architecture.md").read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0].endswith("/`"):
            package = cells[0].strip("`/")
        elif line.startswith("| `") and package and len(cells) == 3:
            found += [ROOT / package / name for name in _list_names(package, cells[0])]
        elif not line.startswith("|"):
            package = ""
    return found


def _list_names(package: str, cell: str) -> list[str]:
    """A file behind one in a folder lies in that folder, where it is not in the package itself."""
    names: list[str] = re.findall(r"`([^`]+)`", cell)
    folder = str(Path(names[0]).parent)
    return [name if (ROOT / package / name).exists() else f"{folder}/{name}" for name in names]


def test_every_room_of_the_plan_is_there() -> None:
    rooms = read_rooms()
    assert len(rooms) > 30
    assert [str(path.relative_to(ROOT)) for path in rooms if not path.exists()] == []


def test_every_room_is_in_the_plan() -> None:
    named = {path.relative_to(ROOT).parts[1] for path in read_rooms()}
    there = {
        path.name
        for package in ("collector", "profiler_server")
        for path in (ROOT / package).iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and not path.name.startswith("__")
    }
    assert there - named == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_and_links_of_a_document_lead_somewhere(document: Path) -> None:
    text = document.read_text("utf-8")
    paths = re.findall(r"`((?:collector|profiler_server|frontend|tests|docs)/[\w./]+)`", text)
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_sections_that_a_document_links_to_are_there(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", document.read_text("utf-8"))
    wrong = [
        f"{file}#{section}"
        for file, section in links
        if "://" not in file and section not in _list_sections(document.parent / file if file else document)
    ]
    assert wrong == []


def _list_sections(document: Path) -> set[str]:
    """Return the headings as GitHub names them in links."""
    text = re.sub(r"```.*?```", "", document.read_text("utf-8"), flags=re.DOTALL)
    headings: list[str] = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_documents_that_code_and_help_texts_name_are_there() -> None:
    sources = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*") if not FOREIGN & {*path.parts}]
    texts = {path: path.read_text("utf-8") for path in sources if path.suffix in (".py", ".html", ".js")}
    named = {(path.name, name) for path, text in texts.items() for name in re.findall(r"docs/[\w/-]+\.\w+", text)}
    assert len(named) > 10
    assert [found for found in named if not (ROOT / found[1]).exists()] == []


def test_older_names_stand_in_one_paragraph_and_where_they_are_recognised() -> None:
    folders = ("collector", "profiler_server", "stepscope", "frontend/templates", "examples")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.*") if path.suffix != ".pyc"]
    commands = {path.name for path in sources if re.search(r"profiler-(run|server)", path.read_text("utf-8"))}
    assert commands == {"entry.py", "launchers.py", "start_up.py"}
    older = re.compile(r"profiler-(run|server)|(from|import) collector\b|`collector\.(auto|launch)`")
    assert [path.name for path in DOCUMENTS if older.search(path.read_text("utf-8"))] == ["CHANGELOG.md", "record.md"]


def test_a_version_of_the_changelog_is_short() -> None:
    versions = (ROOT / "CHANGELOG.md").read_text("utf-8").split("\n## ")[1:]
    lines = {text.splitlines()[0]: sum(bool(line) for line in text.splitlines()[1:]) for text in versions}
    assert {name: count for name, count in lines.items() if count > MOST_LINES_A_VERSION} == {}


def test_the_list_of_trace_formats_is_that_of_the_formats_there_are() -> None:
    text = (ROOT / "docs/how-to/record.md").read_text("utf-8").partition("## Import a trace")[2].partition("\n## ")[0]
    listed = {
        name: set(re.findall(r"`(\.[\w.]+)`", files)) for name, files in re.findall(r"^\| (.*) \| (.*) \|$", text, re.M)
    }
    assert listed == {"what it takes": set()} | {kind.name: set(kind.suffixes) for kind in FORMATS}


def test_no_rule_states_its_threshold_in_figures() -> None:
    """A limit can be changed without its sentence."""
    assert [rule.id for rule in find_rules().rules if re.search(r"\d\s?%", read_about(rule))] == []


def test_a_column_that_is_newer_than_the_format_raises_its_version() -> None:
    columns = [column for table in TABLES.values() for column in table.columns]
    assert [column.name for column in columns if column.since > SCHEMA_VERSION] == []


def test_every_column_has_a_sentence() -> None:
    meanings = {f"{table.name}.{column.name}": column.meaning for table in TABLES.values() for column in table.columns}
    assert [name for name, meaning in meanings.items() if len(meaning) < 5 or not meaning.endswith((".", "…"))] == []


def test_steps_has_one_column_per_phase() -> None:
    names = set(TABLES["steps"].column_names)
    assert {f"{phase}_ns" for phase in PHASE_NAMES} <= names


def test_time_columns_are_integer_nanoseconds() -> None:
    wrong = [
        f"{table.name}.{column.name}"
        for table in TABLES.values()
        for column in table.columns
        if column.name.endswith("_ns") and (column.unit != "ns" or column.dtype != "int64")
    ]
    assert wrong == []
