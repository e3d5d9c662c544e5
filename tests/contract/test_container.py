"""The image and the compose file keep what SECURITY.md promises of them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from collector.launch.command import _parse
from profiler_server.commands.compare import parse_share

ROOT = Path(__file__).parents[2]


@pytest.fixture
def service() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    assert list(found) == ["services"]
    (only,) = found["services"].values()
    assert isinstance(only, dict)
    return only


def read_steps() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with what they say, lines that go on joined."""
    text = (ROOT / "profiler_server/Dockerfile").read_text("utf-8").replace("\\\n", " ")
    lines = (line.split(" ", 1) for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return [(name, " ".join(rest.split())) for name, rest in lines]


def test_the_service_has_few_rights_and_little_room(service: dict[str, Any]) -> None:
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
    assert service["pids_limit"] > 0
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["command"] == ["--allowed-host", "localhost", "--allowed-host", "127.0.0.1"]
    assert "STEPSCOPE_TOKEN" in service["environment"]
    assert (ROOT / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_the_image_is_pinned_has_a_health_check_and_does_not_run_as_root() -> None:
    steps = read_steps()
    names = [name for name, _ in steps]
    said = dict(steps)
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", said["FROM"])
    assert "-c versions.txt" in next(text for name, text in steps if name == "RUN" and "pip install" in text)
    assert said["USER"] not in ("root", "0")
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "/api/v1/health" in said["HEALTHCHECK"]
    for name, text in steps:
        if name == "COPY":
            assert all((ROOT / source).exists() for source in text.split()[:-1]), text


RECIPES = Path(__file__).parents[2] / "examples/ci"


def find_command(name: str) -> list[str]:
    """Return the words of the one line that records pairs."""
    found: list[str] = re.findall(r"stepscope run --pairs .*", (RECIPES / name).read_text(encoding="utf-8"))
    (line,) = found
    return shlex.split(line, comments=True)[2:]


@pytest.mark.parametrize(
    ("name", "against"), [("github.yml", "HEAD^1"), ("gitlab.yml", "$CI_MERGE_REQUEST_DIFF_BASE_SHA")]
)
def test_a_recipe_gives_options_that_there_are(name: str, against: str) -> None:
    given = _parse(find_command(name))
    assert (given.pairs, given.against, given.program.name) == (5, against, "train.py")
    assert parse_share(given.max_slowdown) == 0.05
    assert str(given.markdown) == "gate.md"


def test_what_a_recipe_writes_is_what_it_shows() -> None:
    assert "cat gate.md >>" in (RECIPES / "github.yml").read_text(encoding="utf-8")
    assert f"junit: {_parse(find_command('gitlab.yml')).junit}\n" in (RECIPES / "gitlab.yml").read_text(
        encoding="utf-8"
    )
