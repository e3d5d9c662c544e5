"""Threads that train on processors are spread over several memory nodes."""

from __future__ import annotations

from profiler_server.diagnosis.limits import COMPUTE_FRAC
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.steps import COMPUTING
from profiler_server.format import format_number_of, format_share


def _judge(case: Case) -> Finding | None:
    nodes, threads, usable = case.facts.get("numa_nodes"), case.manifest.torch_threads, case.manifest.usable_cores
    if not isinstance(nodes, int) or nodes < 2 or case.device.entries or not threads or not usable:
        return None
    share = case.steps.share(*COMPUTING)
    if threads <= usable / nodes or share < COMPUTE_FRAC:
        return None
    return Finding(
        title="Threads compute on several memory nodes",
        measured=f"torch uses {format_number_of(threads, 'thread')} on a machine with {nodes} memory nodes, and may use all of "
        f"them; computing is {format_share(share)} of the {case.steps.noun}.",
        threshold="More threads than one node has cores that the process may use.",
        advice="A thread reads memory of another node more slowly. Train one rank on each node, bound to its cores and its "
        "memory, and let them exchange gradients; or compare with one node alone.",
        change="numactl --cpunodebind=0 --membind=0 python train.py\n# or: torchrun --nproc-per-node=2, each rank bound to a node",
        fix="threads on one node",
        evidence=(STEPS_PAGE,),
    )


RULE = Rule("numa", knob="numa", effort="flag", judge=_judge)
