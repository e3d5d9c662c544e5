"""The wheel holds all that an installation needs and nothing else, and the conda recipe says what pyproject.toml says."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")


def read_project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project


def test_the_wheel_holds_what_an_installation_needs(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    info = f"stepscope-{read_project()['version']}.dist-info"
    assert {name.split("/")[0] for name in names} == {"collector", "profiler_server", "stepscope", info}
    source = [
        path for package in ("collector", "profiler_server", "stepscope") for path in (ROOT / package).rglob("*.py")
    ]
    assert {str(path.relative_to(ROOT)) for path in source} <= set(names)
    pages = [path for folder in ("frontend/templates", "docs") for path in (ROOT / folder).rglob("*.*")]
    homes = {"frontend": "profiler_server/frontend", "docs": "stepscope/docs"}
    for path in pages:
        top, _, rest = path.relative_to(ROOT).as_posix().partition("/")
        assert f"{homes[top]}/{rest}" in names
    assert sum(entry.file_size for entry in zipfile.ZipFile(wheel).infolist()) < 20 << 20


def test_the_conda_recipe_needs_what_the_wheel_needs() -> None:
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / ".ci/conda/recipe.yaml").read_text("utf-8"))
    project = read_project()
    run = [entry for entry in recipe["requirements"]["run"] if not entry.startswith("python ")]
    extra = [*project["dependencies"], *project["optional-dependencies"]["server"]]
    conda_names = {"duckdb": "python-duckdb", "prometheus-client": "prometheus_client"}
    wanted = [re.sub(r"^[\w-]+", lambda found: conda_names.get(found[0], found[0]), entry) for entry in extra]
    assert sorted(entry.replace(" ", "") for entry in run) == sorted(wanted)
    assert f"python {project['requires-python']}" in recipe["requirements"]["run"]
    assert recipe["build"]["python"]["entry_points"] == [f"{name} = {to}" for name, to in project["scripts"].items()]
    assert recipe["about"]["license"] == project["license"]
