"""What choosing the samples of a batch takes on the training thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiler_server.facts.loading import SamplerTimes

_MOST_TEXT = 100


def read_sampler(facts: Mapping[str, Any], loader: int) -> SamplerTimes | None:
    """Return what the sampler of a loader took, None where that was not recorded."""
    entries = facts.get("samplers")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("loader") == loader:
            return _read_entry(entry)
    return None


def _read_entry(entry: Mapping[str, Any]) -> SamplerTimes | None:
    counts = [entry.get(name) for name in ("epochs", "batches", "first_ns", "rest_ns", "longest_ns")]
    known = [count for count in counts if isinstance(count, int) and not isinstance(count, bool) and count >= 0]
    if len(known) < len(counts):
        return None
    epochs, batches, first_ns, rest_ns, longest_ns = known
    if not epochs or batches < 2:
        return None
    usual_ns = max(rest_ns - longest_ns, 0) / (batches - 1)
    return SamplerTimes(str(entry.get("kind", "sampler"))[:_MOST_TEXT], usual_ns, first_ns / epochs, epochs)
