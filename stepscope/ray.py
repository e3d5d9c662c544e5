"""Ray Train: `TorchTrainer(record_loop(train_loop, "runs/a"), …)`. Each worker records its rank of one run."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

from collector.edge import hide_frame
from collector.session.framework import FrameworkRun

T = TypeVar("T", bound=Callable[..., Any])


def record_loop(train_loop: T, output_path: str | os.PathLike[str], **options: Any) -> T:
    """Return the train loop of Ray Train so that each worker records it to `output_path`.

    All workers must reach the path. A relative path is that of the calling script. `options` are those of
    `stepscope.Profiler`. Where a worker records already, nothing is added. Raises OptionError for an option that Profiler
    does not take.

    >>> TorchTrainer(record_loop(train_loop, "runs/a"), scaling_config=ScalingConfig(num_workers=2)).fit()
    """
    path = os.fsdecode(output_path)
    # Ray gives its workers another working directory.
    run = FrameworkRun("ray", path if "://" in path else os.path.abspath(path), options)

    @functools.wraps(train_loop)
    def recorded(*config: Any) -> Any:
        run.begin(lambda: "")
        try:
            return train_loop(*config)
        except BaseException as error:
            run.end(error)
            hide_frame(error)
            raise
        finally:
            run.end()

    return recorded  # type: ignore[return-value]
