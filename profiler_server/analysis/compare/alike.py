"""What makes two runs unlike before any time is compared: another script, host, number of ranks, model or batch size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collector.format.run import RankRun
from collector.format.schema.manifest import RunManifest
from profiler_server.format import clean_name

MOST_NAMED = 3


@dataclass(frozen=True)
class Likeness:
    """What runs must have in common for their steps to do the same work; what was not recorded is "", 0 or empty.

    `batch_sizes` are those of the run's DataLoaders, each once, and `parameters` what its optimizers train.
    """

    script: str
    host: str
    world_size: int
    rank: int
    batch_sizes: tuple[int, ...] = ()
    parameters: int = 0


def read_likeness(manifest: RunManifest, rank: RankRun) -> Likeness:
    sizes = {loader.batch_size for loader in rank.manifest.loaders if loader.batch_size}
    return Likeness(
        script=clean_name(manifest.script or ""),
        host=clean_name(manifest.host),
        world_size=manifest.world_size,
        rank=rank.rank,
        batch_sizes=tuple(sorted(sizes)),
        parameters=_count_parameters(rank),
    )


def find_unlike(runs: Sequence[Likeness]) -> list[str]:
    """Say in cautions what differs between runs, in the order in which they are given."""
    found = _name_different("scripts", [run.script for run in runs])
    found += _name_different("hosts", [run.host for run in runs])
    ranks = list(dict.fromkeys(f"rank {run.rank}" for run in runs))
    shown = f"{ranks[0]} of each" if len(ranks) == 1 else " and ".join(ranks[:MOST_NAMED])
    found += _name_different("numbers of ranks", [_count(run.world_size) for run in runs], f"; compared is {shown}")
    parameters = [_count(run.parameters) for run in runs]
    found += _name_different("models", parameters, " trained parameters")
    sizes = [" with ".join(map(_count, run.batch_sizes)) for run in runs]
    return found + _name_different("batch sizes", sizes, ": their steps do not do the same work")


def _count(value: int) -> str:
    return f"{value:,}" if value else ""


def _name_different(what: str, values: Sequence[str], more: str = "") -> list[str]:
    """Name the values where they are known and not the same."""
    named = list(dict.fromkeys(filter(None, values)))
    if len(named) < 2:
        return []
    shown, left = named[:MOST_NAMED], len(named) - MOST_NAMED
    words = f"{', '.join(shown)} and {left} more" if left > 0 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    return [f"different {what}: {words}{more}"]


def _count_parameters(rank: RankRun) -> int:
    """Return the parameters that the optimizers of a rank train, 0 if that was not recorded."""
    optimizers = rank.manifest.facts.get("optimizers")
    if not isinstance(optimizers, list):
        return 0
    counts = (entry.get("parameters") for entry in optimizers if isinstance(entry, dict))
    return sum(count for count in counts if isinstance(count, int))
