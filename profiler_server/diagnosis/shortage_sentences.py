"""Sentences on a job that ran out of memory: who asked for how much, what held the memory, and what lowers that."""

from __future__ import annotations

from profiler_server.analysis.ranks.ends import OutOfMemory
from profiler_server.analysis.ranks.shortage import HeldTensor, Shortage
from profiler_server.format import clean_name, format_bytes, say

_MOST_TENSORS, _MOST_SIZES = 3, 8
_IN_FILE = "<module>"
"""Python's name for code outside of functions."""


def describe_shortage(end: OutOfMemory) -> str:
    """Return a sentence on where a job ran out of memory."""
    found = end.shortage
    return say(
        "shortage",
        "where",
        end=end,
        device="the host" if found.device == "cpu" else clean_name(found.device),
        phase=found.phase,
        place=clean_name(found.place),
        function=_name_function(found.function),
        module=clean_name(found.module),
    )


def explain_shortage(end: OutOfMemory) -> str:
    """Return sentences on what was asked for, what held the memory, and what to do, as far as figures show it."""
    found = end.shortage
    remedy = find_remedy(found)
    sentences = (
        _describe_request(end.rank, found),
        say("shortage", "held", found=found) if found.parameter_bytes else "",
        say("shortage", "tensors", tensors="; ".join(map(_describe_tensor, found.tensors[:_MOST_TENSORS]))),
        say("shortage", remedy, found=found) if remedy else "",
    )
    return " ".join(filter(None, sentences))


def find_remedy(found: Shortage) -> str:
    """Return the name of the text on what to do, "" where the figures show nothing.

    A request larger than the memory fits nowhere. If PyTorch keeps enough for the request, that is in pieces. Else a
    list that is most of the memory decides, or the largest holder.
    """
    asked = found.requested_bytes or 0
    if found.total_bytes is not None and asked > found.total_bytes:
        return "too_large"
    if asked and (found.unallocated_bytes or 0) >= asked:
        return "in_pieces"
    lists = [tensor.bytes for tensor in found.tensors if tensor.count > 1]
    if 2 * max(lists, default=0) > (found.allocated_bytes or found.process_bytes or 1 << 62):
        return "list"
    unknown = 0 if found.parameter_bytes else found.allocated_bytes or 1
    holders = {"": unknown, "others": found.others_bytes, "state": found.state_bytes, "rest": found.rest_bytes}
    return max(holders, key=lambda name: holders[name]) if found.allocated_bytes is not None else ""


def _describe_request(rank: int | None, found: Shortage) -> str:
    if not found.requested_bytes:
        return ""
    who = "It" if rank is None else f"Rank {rank}"
    if found.free_bytes is None:
        return say("shortage", "request", who=who, found=found, free="", held_bytes=found.process_bytes)
    # Nothing free is a figure, too.
    return say("shortage", "request", who=who, found=found, free=format_bytes(found.free_bytes), held_bytes=None)


def _describe_tensor(tensor: HeldTensor) -> str:
    return say(
        "shortage",
        "tensor",
        tensor=tensor,
        name=clean_name(tensor.name) or "a tensor",
        function=_name_function(tensor.function),
        shape="×".join(str(size) for size in tensor.shape[:_MOST_SIZES]),
        dtype=clean_name(tensor.dtype, 20),
        several=tensor.count if tensor.count > 1 else 0,
    )


def _name_function(function: str) -> str:
    return clean_name(function) if function != _IN_FILE else ""
