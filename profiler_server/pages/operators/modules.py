"""The tree of modules on the Operators page."""

from __future__ import annotations

from dataclasses import dataclass

from collector.format.run import RankRun
from profiler_server.analysis.operators.operator_groups import NO_MODULE, ModuleNode, build_module_tree
from profiler_server.format import format_duration, format_share, shorten_middle
from profiler_server.pages.operators.state import PageState

LINES = 150
DEEPEST = 12
LEAST_SHARE_FRAC = 0.002


@dataclass(frozen=True)
class ModuleLine:
    """One module of the tree; `depth` indents it, `path` is its whole name."""

    name: str
    path: str
    depth: int
    device: str
    host: str
    own: str
    share: str
    share_frac: float


@dataclass(frozen=True)
class ModuleTree:
    """`left_out` says in a sentence what is not shown, empty for nothing."""

    lines: tuple[ModuleLine, ...]
    left_out: str


def build_tree(rank: RankRun, state: PageState) -> ModuleTree | None:
    """Build the tree of the module tab; None on other tabs, or where no module holds another."""
    if state.group != "modules":
        return None
    nodes = build_module_tree(rank, state.steps)
    if all(node.depth == 0 for node in nodes):
        return None
    shown = [node for node in nodes if node.share_frac >= LEAST_SHARE_FRAC and node.depth <= DEEPEST][:LINES]
    on_device = any(node.device_ns for node in nodes)
    hidden = len(nodes) - len(shown)
    left_out = (
        f"{hidden:,} modules with under {format_share(LEAST_SHARE_FRAC)} or deeper down are not shown."
        if hidden
        else ""
    )
    return ModuleTree(tuple(_describe(node, on_device) for node in shown), left_out)


def _describe(node: ModuleNode, on_device: bool) -> ModuleLine:
    return ModuleLine(
        name=node.name if node.path == NO_MODULE else shorten_middle(node.name, 50),
        path=node.path[:2000],
        depth=node.depth,
        device=format_duration(node.device_ns),
        host=format_duration(node.host_ns),
        own=format_duration(node.own_device_ns if on_device else node.own_host_ns),
        share=format_share(node.share_frac),
        share_frac=node.share_frac,
    )
