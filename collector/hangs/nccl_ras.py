"""Read the status that `ncclras -f json` writes (NCCL's RAS): the communicators of a job, and the operations of each
rank.

NCCL has RAS since 2.24 and its JSON since 2.28.7; NCCL's user guide lists the fields under "RAS: JSON Output".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from collector.format.schema.reading import read_number, read_text

MOST_COMMUNICATORS = 100_000
MOST_MEMBERS = 1_000_000
MOST_COLLECTIVES = 64
_MOST_RANK = 9_999_999
_SUCCESS, _IN_PROGRESS = 0, 7
"""ncclSuccess and ncclInProgress."""
Process = tuple[str, int, int, str]
"""Host, process id, device, and a text that distinguishes unknown processes."""


class StatusError(ValueError):
    """The values are no status of RAS; the text gives the problem and where it is."""


@dataclass(frozen=True)
class Member:
    """One rank of a communicator. `state` is a word such as running, failed or dead. `error` is NCCL's result code if
    the rank failed, else None. `counts` has the number of the rank's calls of each collective in this communicator.
    """

    rank: int
    process: Process
    state: str
    error: int | None
    counts: Mapping[str, int]


@dataclass(frozen=True)
class Communicator:
    """A communicator. `name` is its hash, with the secondary hash if others have the same."""

    name: str
    size: int
    members: tuple[Member, ...]


@dataclass(frozen=True)
class Status:
    """The job status from RAS. `timeouts` is the number of RAS's requests that got no answer."""

    version: str
    timestamp: str
    timeouts: int
    communicators: tuple[Communicator, ...]


def is_status(value: Any) -> bool:
    return isinstance(value, dict) and "nccl_version" in value and isinstance(value.get("communicators"), list)


def read_status(value: Any) -> Status:
    """Parse the decoded JSON of a status. Raise StatusError if values for the analysis are missing."""
    if not is_status(value):
        raise StatusError("it has no nccl_version with a list of communicators")
    entries = value["communicators"]
    if len(entries) > MOST_COMMUNICATORS:
        raise StatusError(f"it has {len(entries):,} communicators; up to {MOST_COMMUNICATORS:,} are read")
    ras = value.get("ras")
    found: list[Communicator] = []
    members = 0
    for at, entry in enumerate(entries):
        found.append(_read_communicator(entry, f"communicator {at}"))
        members += len(found[-1].members)
        if members > MOST_MEMBERS:
            raise StatusError(f"it has more than {MOST_MEMBERS:,} ranks in its communicators")
    return Status(
        version=read_text(value["nccl_version"])[:40],
        timestamp=read_text(value.get("timestamp"))[:40],
        timeouts=max(read_number(ras.get("timeouts_count"), 0), 0) if isinstance(ras, dict) else 0,
        communicators=_tell_apart(found, entries),
    )


def number_processes(status: Status) -> dict[Process, int]:
    """Return the rank of each process: its rank in a communicator of all processes, else its place in sorted order."""
    processes = {member.process for communicator in status.communicators for member in communicator.members}
    for communicator in status.communicators:
        ranks = {member.process: member.rank for member in communicator.members}
        if len(ranks) == len(processes) == len(communicator.members):
            return ranks
    return {process: rank for rank, process in enumerate(sorted(processes))}


def _read_communicator(entry: Any, where: str) -> Communicator:
    if not isinstance(entry, dict):
        raise StatusError(f"{where} is not a mapping")
    name = read_text(entry.get("hash"))
    if not name:
        raise StatusError(f"{where} has no hash")
    members = [*_read_members(entry, "ranks", where), *_read_members(entry, "missing_ranks", where)]
    if len({member.rank for member in members}) < len(members):
        raise StatusError(f"{where} names a rank twice")
    members.sort(key=lambda member: member.rank)
    return Communicator(name[:60], max(read_number(entry.get("size"), 0), len(members)), tuple(members))


def _read_members(entry: Mapping[Any, Any], key: str, where: str) -> Iterator[Member]:
    listed = entry.get(key, [])
    if not isinstance(listed, list):
        raise StatusError(f"{key} of {where} is no list")
    if len(listed) > MOST_MEMBERS:
        raise StatusError(f"{where} has {len(listed):,} ranks; up to {MOST_MEMBERS:,} are read")
    for at, one in enumerate(listed):
        rank = read_number(one.get("rank"), -1) if isinstance(one, dict) else -1
        if not 0 <= rank <= _MOST_RANK:
            raise StatusError(f"entry {at} in {key} of {where} has no rank")
        told = one.get("status")
        told = told if isinstance(told, dict) else {}
        state, error = _read_missing(told) if key == "missing_ranks" else _read_state(told)
        process = _read_process(one, f"{where}, rank {rank}")
        yield Member(rank, process, state, error, _read_counts(one.get("collective_counts")))


def _read_state(told: Mapping[Any, Any]) -> tuple[str, int | None]:
    begun, later = (read_number(told.get(name), _SUCCESS) for name in ("init_state", "async_error"))
    if told.get("abort_flag") is True:
        return "aborted", None
    for code in (begun, later):
        if code not in (_SUCCESS, _IN_PROGRESS):
            return "failed", min(max(code, -(1 << 31)), (1 << 31) - 1)
    if begun == _IN_PROGRESS:
        return "initializing", None
    ends = told.get("finalize_called") is True or told.get("destroy_flag") is True
    return ("finalizing" if ends else "running"), None


def _read_missing(told: Mapping[Any, Any]) -> tuple[str, int | None]:
    if told.get("considered_dead") is True:
        return "dead", None
    return ("unresponsive" if told.get("unresponsive") is True else "not a member"), None


def _read_process(one: Mapping[Any, Any], where: str) -> Process:
    host, pid = read_text(one.get("host")), read_number(one.get("pid"), -1)
    device = read_number(one.get("nvml_dev"), read_number(one.get("cuda_dev"), -1))
    return host, pid, device, "" if pid >= 0 else where


def _read_counts(told: Any) -> dict[str, int]:
    if not isinstance(told, dict):
        return {}
    counts = {read_text(name)[:60]: read_number(count, -1) for name, count in list(told.items())[:MOST_COLLECTIVES]}
    return {name: count for name, count in counts.items() if name and count >= 0}


def _tell_apart(found: list[Communicator], entries: list[Any]) -> tuple[Communicator, ...]:
    """Return the communicators with unique names: hash, then secondary hash, then index."""
    seen = Counter(communicator.name for communicator in found)
    names: set[str] = set()
    apart = []
    for at, communicator in enumerate(found):
        name = communicator.name
        if seen[name] > 1:
            name = f"{name}:{read_text(entries[at].get('secondary_hash'))[:60]}"
        name = name if name not in names else f"{name} #{at}"
        names.add(name)
        apart.append(replace(communicator, name=name))
    return tuple(apart)
