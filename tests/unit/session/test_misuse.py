"""What a Profiler says when it is used out of turn, or cannot work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from collector import Profiler, active_profiler
from collector.format.schema.errors import OptionError, SessionError
from collector.options import Options, parse_options
from tests.support import shapes
from tests.support.recording import record

pytestmark = pytest.mark.usefixtures("alone")


def test_analyse_says_where_the_run_is_and_how_to_look_at_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profiler = Profiler(tmp_path / "my runs" / "first", window=None)
    shapes.plain()
    profiler.analyse()
    told = capsys.readouterr().err
    assert "recorded 10 steps in" in told
    assert f"stepscope serve '{tmp_path / 'my runs'}'" in told


def test_a_window_that_never_opened_says_which_step_it_waited_for(tmp_path: Path) -> None:
    profiler = Profiler(tmp_path, window=(300, 3))
    shapes.plain()
    status = profiler.analyse().rank().status("operators")
    assert status.state == "off"
    assert "step 10, before the detailed window that was to open at step 300" in status.reason


def test_stop_before_start_is_refused(tmp_path: Path) -> None:
    waiting = Profiler(tmp_path, start_profile=False)
    with pytest.raises(SessionError, match="stop\\(\\) before start"):
        waiting.stop()
    with pytest.raises(SessionError, match="analyse\\(\\) before start"):
        waiting.analyse()


def test_after_analyse_nothing_starts_and_the_run_is_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    done = Profiler(tmp_path, window=None)
    done.analyse()
    with pytest.raises(SessionError, match="start\\(\\) after analyse"):
        done.start()
    first, second = done.analyse(), done.analyse()
    assert first.path == second.path
    assert "was called before" in caplog.text


def test_start_while_recording_is_refused(profiler: Profiler) -> None:
    with pytest.raises(SessionError, match="call stop\\(\\) first"):
        profiler.start()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"windw": None}, "has no option 'windw'; did you mean 'window'"),
        ({"zzz": 1}, "has no option 'zzz'; it has: window, data_pipeline"),
        ({"window": "always"}, "window takes"),
        ({"window": (1, -2)}, "window takes"),
        ({"memory": "yes"}, "memory takes True or False"),
        ({"level": "loud"}, "level takes one of debug, info, important"),
        ({"activities": ["gpu"]}, "activities takes some of cpu, device"),
        ({"baseline": 3}, "baseline takes the path of a run"),
    ],
)
def test_an_option_that_does_not_exist_or_fit_is_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Profiler(tmp_path, **options)


def test_the_run_to_improve_is_kept_as_a_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = Profiler("second", window=None, baseline=Path("first")).analyse()
    assert run.manifest.options["baseline"] == str(tmp_path / "first")


def test_the_context_manager_closes_the_run(tmp_path: Path) -> None:
    with Profiler(tmp_path, window=None) as profiler:
        shapes.plain()
    run = profiler.analyse()
    assert run.state == "complete"
    assert run.frame("steps").kind.value_counts()["train"] == 10


def test_stopped_and_paused_work_is_absent(tmp_path: Path) -> None:
    profiler = Profiler(tmp_path, window=None, start_profile=False)
    shapes.plain()
    profiler.start()
    shapes.plain()
    profiler.pause()
    profiler.pause()
    shapes.plain()
    profiler.resume()
    profiler.resume()
    shapes.plain()
    profiler.stop()
    shapes.plain()
    profiler.start()
    shapes.plain()
    steps = profiler.analyse().frame("steps")
    assert (steps.kind == "train").sum() == 30
    assert (steps.start_ns.shift(-1) - steps.start_ns - steps.duration_ns).dropna().eq(0).all()


def test_step_overrides_what_would_be_found(tmp_path: Path) -> None:
    profiler = Profiler(tmp_path, window=None)
    model = shapes.Net()
    optimizer = shapes.sgd(model)
    for number, batch in enumerate(shapes.loader()):
        shapes.train_on(model, optimizer, [batch])
        if number % 2:
            profiler.step()
    steps = profiler.analyse().frame("steps")
    train = steps[steps.kind == "train"]
    assert len(train) == 5 + 1  # the first batch was over before the first call was seen
    assert train.markers.sum() == 5


def test_no_steps_at_all_is_an_empty_run_that_opens(tmp_path: Path) -> None:
    run = Profiler(tmp_path, window=None).analyse()
    assert run.state == "complete"
    assert run.rank(0).manifest.overhead.training_thread_ns_per_step is None


def test_a_second_live_profiler_is_refused_by_name_of_the_first(profiler: Profiler, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"already recording to .*run; call its analyse\(\)") as refused:
        Profiler(tmp_path / "other")
    assert "if you no longer hold it: stepscope.active_profiler().analyse()" in str(refused.value)


def test_a_profiler_that_could_not_record_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    Profiler(tmp_path / "file", window=None)
    assert active_profiler() is None
    Profiler(tmp_path / "run", window=None).analyse()


def test_a_profiler_that_was_lost_is_found_again(profiler: Profiler) -> None:
    assert active_profiler() is profiler
    profiler.analyse()
    assert active_profiler() is None


def loop() -> None:
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for (batch,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 8)), 4):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()


def test_the_level_important_records_steps_and_nothing_beside_them(tmp_path: Path) -> None:
    recorded = record(tmp_path, loop, level="important", window=None)
    assert len(recorded.train) == 8
    status = recorded.run.rank().status("stages")
    assert status.state == "off"
    assert status.reason == 'The option data_pipeline of the Profiler was off by level="important".'


def test_what_is_switched_on_by_name_is_recorded_at_any_level() -> None:
    options = parse_options({"level": "important", "resources": True, "window": (5, 2)})
    assert (options.resources, options.window.first, options.is_on("window")) == (True, 5, True)
    assert not options.data_pipeline


def test_the_level_info_is_the_default_and_leaves_everything_on() -> None:
    assert parse_options({"level": "info"}) == parse_options({}) == Options()
