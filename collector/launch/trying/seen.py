"""What the recorded run of a search shows of the script."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from collector import server
from collector.environment import count_usable_cores
from collector.format.rank import read_step_rows
from collector.format.run import open_run
from collector.format.schema.errors import RunError
from collector.format.steps import summarize_phases
from collector.launch.trying.knobs import Seen
from collector.launch.trying.search import TrialFailed


def read_seen(folder: Path) -> Seen:
    """Return what the recorded run shows. Raises TrialFailed if it cannot be read."""
    try:
        run = open_run(folder)
        rank = run.rank()
        shares = {phase.name: phase.share_frac for phase in summarize_phases(read_step_rows(rank).steps)}
        names = (
            rank.table("operators", ("name",))["name"].to_pylist() if rank.status("operators").state == "there" else []
        )
        manifest = rank.manifest
    except RunError as error:
        raise TrialFailed(str(error)) from None
    loader = max(manifest.loaders, key=lambda each: each.num_workers or 0, default=None)
    asked: dict[str, Any] = {}
    with suppress(Exception):  # advice only sets the order
        for suggestion in server.diagnose(run, rank.rank)[1]:
            asked = {**suggestion.settings, **asked}
    optimizers = manifest.facts.get("optimizers")
    return Seen(
        cores=int(manifest.usable_cores or count_usable_cores() or 1),
        threads=manifest.torch_threads,
        workers=loader.num_workers if loader is not None else None,
        prefetch=loader.prefetch_factor if loader is not None else None,
        persistent=bool(loader.persistent_workers) if loader is not None else False,
        waits_frac=shares.get("data_wait", 0.0),
        update_frac=shares.get("optimizer", 0.0),
        compute_frac=shares.get("forward", 0.0) + shares.get("backward", 0.0),
        operators=frozenset(filter(None, names)),
        optimizers=tuple(each for each in optimizers if isinstance(each, dict)) if isinstance(optimizers, list) else (),
        facts=manifest.facts,
        uses_device=bool(manifest.devices),
        ranks=run.manifest.world_size,
        asked=asked,
    )
