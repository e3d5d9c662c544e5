"""How the model is spread over ranks and devices, as the training noted it: DistributedDataParallel, DataParallel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MOST_TEXT = 100
_MANY_BUCKETS, _SMALL_BUCKET_BYTES = 8, 1 << 20
_LEAST_SPLIT_BYTES = 4 << 20


@dataclass(frozen=True)
class Ddp:
    """Settings of the first DistributedDataParallel. A count is 0, and `bucket_bytes` empty, where it was not noted."""

    backend: str
    device_type: str
    parameter_bytes: int
    unused_bytes: int | None
    bucket_bytes: tuple[int, ...]
    finds_unused: bool
    shares_buckets: bool
    backwards: int
    synced_backwards: int

    @property
    def has_tiny_buckets(self) -> bool:
        """Say whether gradients go out in many small pieces: each costs a round trip."""
        count = len(self.bucket_bytes)
        return count >= _MANY_BUCKETS and sum(self.bucket_bytes) < count * _SMALL_BUCKET_BYTES

    @property
    def has_one_bucket(self) -> bool:
        """Say whether all gradients go out together, when the backward is over: nothing hides that."""
        return len(self.bucket_bytes) == 1 and self.bucket_bytes[0] >= _LEAST_SPLIT_BYTES

    @property
    def syncs_all(self) -> bool:
        """Say whether (nearly) every backward reduces the gradients."""
        return self.backwards > 0 and self.synced_backwards >= 0.95 * self.backwards


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
