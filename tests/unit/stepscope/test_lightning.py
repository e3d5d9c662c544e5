"""Lightning's Trainer begins and ends a run; what is recorded in between is what a plain Profiler records."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stepscope
from collector import OptionError, Profiler, Run
from stepscope.lightning import StepscopeCallback, StepscopeProfiler
from tests.support import shapes
from tests.support.frameworks import build_lightning_module, build_lightning_trainer
from tests.unit.stepscope.comparing import FAST, count_kinds, list_rows, list_saves, record_around

# Frameworks warn of what is their own business.
pytestmark = pytest.mark.filterwarnings("ignore")
PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def attach(door: str, path: Path | None = None) -> dict[str, Any]:
    """Return the argument of a Trainer that records to a path by the profiler or by the callback."""
    if door == "profiler":
        return {"profiler": StepscopeProfiler(path, **FAST)}
    return {"callbacks": [StepscopeCallback(path, **FAST)]}


def fit(folder: Path, package: str = "lightning.pytorch", **options: Any) -> Any:
    trainer = build_lightning_trainer(folder, package, **options)
    trainer.fit(build_lightning_module(package=package), shapes.loader(), shapes.loader(64))
    return trainer


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("door", ["profiler", "callback"])
def test_a_fit_is_recorded_as_by_a_plain_profiler_around_it(tmp_path: Path, door: str, package: str) -> None:
    fit(tmp_path, package, **attach(door, tmp_path / "door"))
    assert stepscope.active_profiler() is None
    plain, run = record_around(tmp_path / "plain", lambda: fit(tmp_path, package)), Run(tmp_path / "door")
    assert count_kinds(run) == {"train": 20, "eval": 2 + 8}
    assert list_rows(run) == list_rows(plain)
    assert list_saves(run) == list_saves(plain) == ["Trainer.save_checkpoint"] * 2


def test_each_call_of_the_trainer_is_a_run(tmp_path: Path) -> None:
    trainer = fit(tmp_path, **attach("profiler", tmp_path / "run"))
    module = trainer.lightning_module
    trainer.validate(module, shapes.loader(48))
    trainer.test(module, shapes.loader(32))
    kinds = [count_kinds(Run(tmp_path / name)) for name in ("run", "run-2", "run-3")]
    assert kinds == [{"train": 20, "eval": 10}, {"eval": 3}, {"eval": 2}]


@pytest.mark.parametrize("door", ["profiler", "callback"])
def test_an_error_ends_the_run_and_is_noted(tmp_path: Path, door: str) -> None:
    def fail(index: int) -> None:
        if index == 4:
            raise ValueError("no such label")

    trainer = build_lightning_trainer(tmp_path, **attach(door, tmp_path / "run"))
    with pytest.raises(ValueError, match="no such label"):
        trainer.fit(build_lightning_module(act=fail), shapes.loader())
    assert stepscope.active_profiler() is None
    assert count_kinds(Run(tmp_path / "run"))["train"] >= 4
    assert Run(tmp_path / "run").rank().manifest.facts["ended_by"] == "ValueError: no such label"


@pytest.mark.parametrize("door", ["profiler", "callback"])
def test_ctrl_c_ends_the_run_and_is_noted(tmp_path: Path, door: str) -> None:
    def interrupt(index: int) -> None:
        if index == 4:
            raise KeyboardInterrupt

    trainer = build_lightning_trainer(tmp_path, **attach(door, tmp_path / "run"))
    with pytest.raises(SystemExit):
        trainer.fit(build_lightning_module(act=interrupt), shapes.loader())
    assert Run(tmp_path / "run").rank().manifest.facts["ended_by"] == "KeyboardInterrupt"


def test_a_profiler_that_records_already_goes_on_alone(tmp_path: Path) -> None:
    run = record_around(tmp_path / "run", lambda: fit(tmp_path, **attach("profiler", tmp_path / "door")))
    assert count_kinds(run) == {"train": 20, "eval": 10}
    assert not (tmp_path / "door").exists()


def test_profiler_and_callback_of_one_trainer_are_one_run(tmp_path: Path) -> None:
    fit(tmp_path, profiler=StepscopeProfiler(tmp_path / "a", **FAST), callbacks=[StepscopeCallback(tmp_path / "b")])
    assert count_kinds(Run(tmp_path / "a")) == {"train": 20, "eval": 10}
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("door", ["profiler", "callback"])
def test_a_run_without_a_path_is_named_by_model_and_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    from lightning.pytorch.loggers import CSVLogger

    monkeypatch.chdir(tmp_path)
    fit(tmp_path, **attach(door), logger=CSVLogger(tmp_path / "logs"))
    fit(tmp_path, **attach(door), fast_dev_run=True)
    assert count_kinds(Run(tmp_path / "profiler_output/Module-version_0")) == {"train": 20, "eval": 10}
    assert count_kinds(Run(tmp_path / "profiler_output/Module")) == {"train": 1, "eval": 1}


def test_a_trainer_is_copied_and_pickled_with_its_doors(tmp_path: Path) -> None:
    doors = [StepscopeProfiler(tmp_path / "run", **FAST), StepscopeCallback(tmp_path / "run", **FAST)]
    copies = copy.deepcopy(pickle.loads(pickle.dumps(doors)))
    fit(tmp_path, profiler=copies[0])
    fit(tmp_path, callbacks=[copies[1]])
    copies[0].teardown("fit")
    copies[0].__del__()
    assert [count_kinds(Run(tmp_path / name))["train"] for name in ("run", "run-2")] == [20, 20]


def test_a_misspelt_option_is_named_where_it_stands() -> None:
    for door in (StepscopeProfiler, StepscopeCallback):
        with pytest.raises(OptionError, match="no option 'widow'; did you mean 'window'"):
            door(widow=(3, 2))


def test_both_packages_are_served_where_both_are_imported() -> None:
    code = (
        "import lightning.pytorch as a, pytorch_lightning as b, stepscope.lightning as door;"
        "print(all(issubclass(door.StepscopeProfiler, p.profilers.Profiler) for p in (a, b)),"
        " all(issubclass(door.StepscopeCallback, p.Callback) for p in (a, b)))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == "True True\n", done.stderr


@pytest.mark.parametrize(
    ("argument", "remedy"),
    [
        ("profiler", r"write Trainer\(profiler=stepscope.lightning.StepscopeProfiler"),
        ("callbacks", r"write Trainer\(callbacks=\[stepscope.lightning.StepscopeCallback"),
    ],
)
def test_a_plain_profiler_in_a_trainer_is_answered_by_what_to_write(tmp_path: Path, argument: str, remedy: str) -> None:
    with Profiler(tmp_path / "run", **FAST) as profiler:
        given: dict[str, Any] = {"profiler": profiler} if argument == "profiler" else {"callbacks": [profiler]}
        with pytest.raises(AttributeError, match=remedy):
            fit(tmp_path, **given)
