"""What every test starts from."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A job in the background of a shell starts with SIGINT ignored, and so would every process that a test starts. With a
# handler here, they start as at a terminal.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Frameworks that are tested must not ask their hub for anything.
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
os.environ["PROFILER_VERDICT"] = "0"  # a second for each of the hundreds of trainings

# The gate gives the same answer for the same tree, however slow the machine is.
SLOWNESS = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
settings.register_profile("gate", deadline=None, derandomize=True, suppress_health_check=SLOWNESS)
settings.load_profile("gate")


def pytest_addoption(parser: pytest.Parser) -> None:
    help_text = "write what is said now to tests/golden/words, to be read in the diff"
    parser.addoption("--rewrite-golden", action="store_true", help=help_text)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where processes share the files, begin with those that have the most slow tests: none of them is left for the end."""
    if hasattr(config, "workerinput"):
        slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
        items.sort(key=lambda item: -slow[item.path])


def pytest_collection_finish() -> None:
    """Spare each collection of garbage the million objects that live as long as the tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return what compares a text with tests/golden/words/NAME.txt, or writes that with --rewrite-golden."""

    def compare(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden/words" / f"{name}.txt"
        if request.config.getoption("--rewrite-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        elif not path.exists():
            pytest.fail(f"{path} does not exist yet: run pytest --rewrite-golden and read what it holds")
        assert text == path.read_text("utf-8")

    return compare
