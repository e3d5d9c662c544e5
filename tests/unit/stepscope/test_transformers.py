"""Hugging Face's Trainer begins and ends a run; what is recorded in between is what a plain Profiler records."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback

import stepscope
from collector import OptionError, Profiler, Run
from stepscope.transformers import StepscopeCallback
from tests.support.frameworks import build_trainer
from tests.unit.stepscope.comparing import FAST, count_kinds, list_rows, list_saves, record_around

# Frameworks warn of what is their own business.
pytestmark = pytest.mark.filterwarnings("ignore")


class Interrupts(TrainerCallback):  # type: ignore[misc]
    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        if state.global_step == 5:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_training_is_recorded_as_by_a_plain_profiler_around_it(tmp_path: Path) -> None:
    build_trainer(tmp_path, [StepscopeCallback(tmp_path / "door", **FAST)], save_strategy="epoch").train()
    assert stepscope.active_profiler() is None
    run = Run(tmp_path / "door")
    plain = record_around(tmp_path / "plain", build_trainer(tmp_path, save_strategy="epoch").train)
    assert count_kinds(run) == {"train": 20, "eval": 8}
    assert list_rows(run) == list_rows(plain)
    assert list_saves(run) == list_saves(plain) == ["Trainer.save_checkpoint"] * 2


def test_a_run_without_a_path_has_the_name_of_the_run_or_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    build_trainer(tmp_path, [StepscopeCallback(**FAST)]).train()
    build_trainer(tmp_path, [StepscopeCallback(**FAST)], run_name="../my team/lr 0.1.json").train()
    found = sorted(path.name for path in (tmp_path / "profiler_output").iterdir())
    assert found == ["BertForSequenceClassification", "my-team-lr-0.1"]


def test_a_training_after_one_that_was_interrupted_is_a_run_of_its_own(tmp_path: Path) -> None:
    broken = build_trainer(tmp_path, [StepscopeCallback(tmp_path / "run", **FAST), Interrupts()])
    with pytest.raises(KeyboardInterrupt):
        broken.train()
    build_trainer(tmp_path, [StepscopeCallback(tmp_path / "run", **FAST)]).train()
    assert stepscope.active_profiler() is None
    assert [count_kinds(Run(tmp_path / name))["train"] for name in ("run", "run-2")] == [5, 20]


def test_a_profiler_that_records_already_goes_on_alone(tmp_path: Path) -> None:
    trainer = build_trainer(tmp_path, [StepscopeCallback(tmp_path / "door", **FAST)])
    assert count_kinds(record_around(tmp_path / "run", trainer.train)) == {"train": 20, "eval": 8}
    assert not (tmp_path / "door").exists()


def test_an_evaluation_alone_is_answered_by_what_to_write(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trainer = build_trainer(tmp_path, [StepscopeCallback(tmp_path / "run", **FAST)])
    trainer.evaluate()
    trainer.predict(trainer.eval_dataset)
    (line,) = (line for line in capfd.readouterr().err.splitlines() if line.startswith("stepscope:"))
    write = line.partition("write: ")[2]
    assert write == f"with stepscope.Profiler({str(tmp_path / 'run')!r}): trainer.evaluate()"
    exec(write)  # what the line says to write records the evaluation, and no line follows
    assert count_kinds(Run(tmp_path / "run")) == {"eval": 4}
    trainer = build_trainer(tmp_path, [StepscopeCallback(tmp_path / "other", **FAST)])
    trainer.train()
    trainer.evaluate()
    assert "was not recorded" not in capfd.readouterr().err


def test_the_callback_is_copied_and_pickled_while_it_records(tmp_path: Path) -> None:
    class Copies(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            pickle.loads(pickle.dumps(copy.deepcopy(callback)))

    callback = StepscopeCallback(tmp_path / "run", **FAST)
    build_trainer(tmp_path, [callback, Copies()]).train()
    assert count_kinds(Run(tmp_path / "run"))["train"] == 20


def test_a_misspelt_option_is_named_where_it_stands() -> None:
    with pytest.raises(OptionError, match="no option 'widow'; did you mean 'window'"):
        StepscopeCallback(widow=(3, 2))


def test_a_plain_profiler_as_a_callback_is_answered_by_what_to_write(tmp_path: Path) -> None:
    remedy = r"write Trainer\(callbacks=\[stepscope.transformers.StepscopeCallback"
    with Profiler(tmp_path / "run", **FAST) as profiler, pytest.raises(AttributeError, match=remedy):
        build_trainer(tmp_path, [profiler])
