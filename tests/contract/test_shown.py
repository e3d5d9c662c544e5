"""No text of a run is without a declaration of what a redacted run shows of it."""

from __future__ import annotations

import ast
import dataclasses
import json
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

from collector.format.schema import manifest
from collector.format.schema.columns import read_shown
from collector.format.schema.manifest import RankManifest, RunManifest
from collector.format.schema.tables import TABLES
from collector.format.standstills import Standstill
from collector.format.words import SIGNALS, WARNINGS
from collector.options import ACTIVITIES, LEVELS, Options, WindowOption
from collector.plugins import find_plugins
from profiler_server.store.redaction import Redactor
from profiler_server.store.vocabulary import exchange_name

ROOT = Path(__file__).parents[2]
TEXTS = ("string", "category")
COLUMNS = [(table.name, column) for table in TABLES.values() for column in table.columns if column.dtype in TEXTS]
KINDS = [
    kind
    for kind in vars(manifest).values()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == manifest.__name__
]


def test_every_column_of_texts_says_what_of_them_is_shown() -> None:
    assert len(COLUMNS) > 40
    assert [f"{table}.{column.name}" for table, column in COLUMNS if column.shown is None] == []
    assert [
        column.name
        for table in TABLES.values()
        for column in table.columns
        if column.dtype not in TEXTS and column.shown
    ] == []


def test_every_text_of_a_manifest_says_what_of_it_is_shown() -> None:
    assert {RunManifest, RankManifest} <= set(KINDS)
    silent = [
        f"{kind.__name__}.{entry.name}"
        for kind in KINDS
        for entry in dataclasses.fields(kind)
        if _holds_text(typing.get_type_hints(kind)[entry.name])
        and entry.name != "facts"
        and read_shown(entry.metadata) is None
    ]
    assert silent == []


def _holds_text(hint: object) -> bool:
    inner = typing.get_args(hint)
    return hint in (str, typing.Any) or any(isinstance(each, str) or _holds_text(each) for each in inner)


def test_options_signals_and_warnings_stay_as_they_are() -> None:
    options = json.loads(json.dumps(dataclasses.asdict(Options(baseline="/home/me/run"))))
    run = RunManifest("a", "a", 0, 0, "collector", 1, "host", options=options)
    del options["baseline"], options["log_to"]  # a path, and the name of a class of the user
    assert Redactor().redact_run(run).options == options
    assert {*LEVELS, *ACTIVITIES, *(field.name for field in dataclasses.fields(WindowOption))} <= {
        *_words(RunManifest, "options")
    }
    assert _find_codes() <= set(WARNINGS)
    pytest.importorskip("torch")
    import collector.signals as room

    assert {kind.name for kind in find_plugins(room, "SIGNAL")} <= set(SIGNALS)


def _words(kind: type, name: str) -> tuple[str, ...]:
    entry = next(entry for entry in dataclasses.fields(kind) if entry.name == name)
    found = read_shown(entry.metadata)
    assert found is not None
    return found.words


def _find_codes() -> set[str]:
    """Return the codes of `Warn("…", …)` and `warn("…", …)`."""
    found = set()
    for path in (*(ROOT / "collector").rglob("*.py"), *(ROOT / "profiler_server").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called in ("Warn", "warn") and isinstance(node.args[0].value, str) and len(node.args) == 2:
                    found.add(node.args[0].value)
    assert len(found) > 15
    return found


def test_facts_that_a_recording_gives_keep_keys_and_figures(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from collector.format.run import open_run
    from profiler_server.store.redaction import redact
    from tests.support.recording import record

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop() -> None:
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()

    record(tmp_path / "run", loop)
    run = open_run(tmp_path / "run")
    facts = run.rank().manifest.facts
    assert facts["optimizers"][0]["name"] == "SGD"
    shown = redact(run).rank().manifest.facts
    assert shown["optimizers"] == facts["optimizers"]
    assert {name: _outline(fact) for name, fact in shown.items()} == {
        name: _outline(fact) for name, fact in facts.items()
    }


def _outline(value: object) -> object:
    """Return JSON without its texts."""
    if isinstance(value, dict):
        return {key: _outline(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_outline(entry) for entry in value]
    return "" if isinstance(value, str) else value


def test_facts_that_recordings_seldom_give_keep_their_keys() -> None:
    pytest.importorskip("torch")
    from collector.signals import calls, libraries, model, workers

    moment: dict[str, Any] = {
        "step": 3,
        "phase": "forward",
        "after": "",
        "in_collective": True,
        "since_ns": 5,
        "ended": 1,
    }
    moment |= {"next": {"name": "allreduce (DDP)", "bytes": 8, "is_begun": True, "group": "0"}, "backward_group": "0"}
    moment |= {"groups": [{"name": "0", "label": "", "ranks": [0], "is_whole": True, "ended": 1}]}
    still = {"for_ns": 1, "limit_ns": 2, "alone_limit_ns": 3, "stack": "", "works": True, "waits": False}
    ddp: dict[str, Any] = dict.fromkeys(model._COPIED, 1) | {
        "bucket_bytes": [1],
        "backend": "gloo",
        "device_type": "cpu",
    }
    sums = libraries.LoggingSums().describe()
    logs = [{"name": label, **sums} for _, _, label in libraries._LOGS]
    facts: dict[str, Any] = {
        "moment": moment,
        "standing": {**moment, **still},
        "standstills": [Standstill(0, 1, 2, 3, "forward", missing=(1,)).write()],
        "samplers": [workers.SamplerSums("RandomSampler").describe(0)],
        "ddp": {**ddp, "hook": "", "backwards": 1, "synced_backwards": 1},
        "logging": {"steps": 3, "libraries": logs},
        "triggers": [{"trigger": "outlier", "step": 3, "at_ns": 4, "text": ""}],
        "repeated_nodes": {"step": 11, "nodes": [[1, 2, 0, 2]]},
        "unused_gradients": {
            "parameters": 1,
            "tensors": 1,
            "updated": 1,
            "held": 1,
            "nodes": [[1, 2, 0, 2]],
            "step": 10,
        },
        "calls": [calls.Place().describe("", "")],
        "nccl_status": {"timestamp": "", "timeouts": 1},
        "matmul_precision": "highest",
        "process_groups": {"0": [0, 1]},
        "entered_collectives": {"0": 4},
    }
    manifest = RankManifest(0, "", 1, "complete", 0, 0, facts=facts)
    assert Redactor().redact_rank(manifest).facts == facts


def test_the_list_of_names_covers_what_torch_registers() -> None:
    pytest.importorskip("torch")
    # A process of its own: other tests register operators of theirs.
    code = "import json; from tests.support.torch_names import find_names; print(json.dumps({k: sorted(v) for k, v in find_names().items()}))"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(said.stdout)
    assert len(found["operator"]) > 2000
    assert len(found["node"]) > 500
    missing = [name for names in found.values() for name in names if exchange_name(name, lambda kind, _: kind) != name]
    assert missing == [], (
        "stale: run `python -m tests.support.torch_names > profiler_server/store/vocabulary/torch.txt`"
    )
