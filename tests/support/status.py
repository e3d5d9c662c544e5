"""Statuses of NCCL's RAS, as the values that `ncclras -f json` writes."""

from __future__ import annotations

from typing import Any

KINDS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def make_rank(rank: int, count: int = 812, process: int | None = None, **status: Any) -> dict[str, Any]:
    told = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    place = rank if process is None else process
    return {
        "rank": rank,
        "host": f"172.16.64.{210 + place // 8}",
        "pid": 483_072 + place,
        "cuda_dev": place % 8,
        "nvml_dev": place % 8,
        "status": {**told, **status},
        "collective_counts": {**dict.fromkeys(KINDS, 3), "AllReduce": count},
    }


def make_missing(rank: int, **status: bool) -> dict[str, Any]:
    entry = {name: value for name, value in make_rank(rank).items() if name != "collective_counts"}
    return {**entry, "status": {"unresponsive": True, "considered_dead": False, **status}}


def make_communicator(ranks: list[dict[str, Any]], *missing: dict[str, Any], name: str = "0xae94423cfbb2ef4a") -> Any:
    return {
        "hash": name,
        "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
        "size": len(ranks) + len(missing),
        "ranks_count": len(ranks),
        "missing_ranks_count": len(missing),
        "ranks": ranks,
        "missing_ranks": list(missing),
    }


def make_status(*communicators: Any) -> dict[str, Any]:
    return {
        "nccl_version": "2.29.1",
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": "2025-12-19 13:06:53",
        "communicators_count": len(communicators),
        "communicators": list(communicators),
        "ras": {"collection_time_sec": 0.002, "timeouts_count": 0},
    }
