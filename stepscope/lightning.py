"""Lightning: `Trainer(profiler=StepscopeProfiler())`, or `Trainer(callbacks=[StepscopeCallback()])`.

Both record what `Profiler` records around the same call of the Trainer. Each fit, validate, test and predict is a run.
They serve `lightning.pytorch` and `pytorch_lightning`: their bases are those of the package that is imported.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from collector.session.framework import FrameworkRun

if TYPE_CHECKING:
    import lightning.pytorch as pl

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_NOTHING = nullcontext()


def _find_bases(module: str, name: str) -> tuple[Any, ...]:
    """Return a class of each Lightning that is imported, else of the first that is installed."""
    packages = [package for package in _PACKAGES if package in sys.modules]
    if not packages:
        packages = [package for package in _PACKAGES if find_spec(package.partition(".")[0])][:1]
    return tuple(getattr(import_module(f"{package}.{module}"), name) for package in packages or _PACKAGES[:1])


class StepscopeProfiler(*_find_bases("profilers", "Profiler")):  # type: ignore[misc]
    """Record each call of the Trainer. `options` are those of `stepscope.Profiler`, and so is `output_path`.

    The default path is `profiler_output/<model>-<version of the log>`. Where a Profiler records already, nothing is
    added. Raises OptionError for an option that Profiler does not take.
    """

    def __init__(self, output_path: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__()
        self._run = FrameworkRun("lightning", output_path, options)

    def setup(self, stage: str, local_rank: int | None = None, log_dir: str | None = None) -> None:
        super().setup(stage, local_rank, log_dir)
        self._run.begin(lambda: _name_run(self._lightning_module, log_dir))

    def profile(self, action_name: str) -> AbstractContextManager[None]:
        """End the run if an error ended the training. All else is found by itself, so an action costs nothing."""
        if action_name.endswith(".on_exception"):
            self._run.end(sys.exc_info()[1])
        return _NOTHING

    def start(self, action_name: str) -> None:
        """Do nothing."""

    def stop(self, action_name: str) -> None:
        """Do nothing."""

    def teardown(self, stage: str | None) -> None:
        super().teardown(stage)
        self._run.end()

    def __del__(self) -> None:
        """Leave the run as it is: the collection of garbage is no end of a training."""


class StepscopeCallback(*_find_bases("callbacks", "Callback")):  # type: ignore[misc]
    """Record each call of the Trainer, and note the error that ends one. Otherwise as StepscopeProfiler."""

    def __init__(self, output_path: str | os.PathLike[str] | None = None, **options: Any) -> None:
        self._run = FrameworkRun("lightning-callback", output_path, options)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        log_dir = trainer.log_dir  # the ranks agree on it here: none may leave this out
        self._run.begin(lambda: _name_run(pl_module, log_dir))

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self._run.end()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._run.end(exception)


def _name_run(module: Any, log_dir: str | None) -> str:
    version = os.path.basename(log_dir or "")
    return (
        f"{module.__class__.__name__}-{version}" if version.startswith("version_") else str(module.__class__.__name__)
    )
