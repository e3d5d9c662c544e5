"""How the model is spread over ranks and devices, as the training noted it: DistributedDataParallel, DataParallel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiler_server.facts.job import Ddp

_MOST_TEXT = 100


def read_ddp(facts: Mapping[str, Any]) -> Ddp | None:
    """Return what was noted of DistributedDataParallel, None for nothing."""
    noted = facts.get("ddp")
    if not isinstance(noted, Mapping):
        return None
    buckets = noted.get("bucket_bytes")
    counts = {name: _read_count(noted.get(name)) for name in ("parameter_bytes", "backwards", "synced_backwards")}
    return Ddp(
        backend=str(noted.get("backend", ""))[:_MOST_TEXT],
        device_type=str(noted.get("device_type", ""))[:_MOST_TEXT],
        parameter_bytes=counts["parameter_bytes"] or 0,
        unused_bytes=_read_count(noted.get("unused_bytes")),
        bucket_bytes=tuple(size for entry in buckets if (size := _read_count(entry)) is not None)
        if isinstance(buckets, list)
        else (),
        finds_unused=bool(noted.get("find_unused_parameters")),
        shares_buckets=bool(noted.get("gradient_as_bucket_view")),
        backwards=counts["backwards"] or 0,
        synced_backwards=counts["synced_backwards"] or 0,
    )


def _read_count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def count_parallel_devices(facts: Mapping[str, Any]) -> int:
    """Return the devices of nn.DataParallel, 0 where it is not used."""
    return _read_count(facts.get("data_parallel")) or 0
