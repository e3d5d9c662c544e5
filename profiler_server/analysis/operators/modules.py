"""The tree of nn.Modules, with the time of the operators that each called itself and with what it called."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from collector.format.lens import StepRange
from collector.format.run import RankRun
from profiler_server.analysis.operators.operator_groups import NO_MODULE, GroupTable, tabulate_modules

SEPARATOR = "."


@dataclass(frozen=True)
class ModuleNode:
    """One module, after the one that holds it. Times are self times of operators, so a level adds up to the one above.

    `device_ns` and `host_ns` cover the modules inside, `own_device_ns` and `own_host_ns` do not. `share_frac` is of
    the whole, on the device where it did anything.
    """

    path: str
    name: str
    depth: int
    device_ns: int
    host_ns: int
    own_device_ns: int
    own_host_ns: int
    share_frac: float


def build_module_tree(rank: RankRun, steps: StepRange | None = None) -> tuple[ModuleNode, ...]:
    """Return the modules in the order of a tree, the longest first on every level. Raises as `RankRun.table` does."""
    return list_nodes(tabulate_modules(rank, steps))


def list_nodes(group: GroupTable) -> tuple[ModuleNode, ...]:
    own = _read_own(group.rows)
    whole: dict[str, tuple[int, int]] = {}
    for path, (device, host) in own.items():
        for above in _list_ancestors(path):
            known = whole.get(above, (0, 0))
            whole[above] = (known[0] + device, known[1] + host)
    side = 0 if group.measure == "device" else 1
    total = sum(times[side] for times in own.values()) or 1
    ordered = sorted(whole, key=lambda path: [(-whole[a][side], a) for a in _list_ancestors(path)])
    return tuple(
        ModuleNode(
            path=path,
            name=path if path == NO_MODULE else path.rsplit(SEPARATOR, 1)[-1],
            depth=len(_list_ancestors(path)) - 1,
            device_ns=whole[path][0],
            host_ns=whole[path][1],
            own_device_ns=own.get(path, (0, 0))[0],
            own_host_ns=own.get(path, (0, 0))[1],
            share_frac=whole[path][side] / total,
        )
        for path in ordered
    )


def _read_own(rows: pa.Table) -> dict[str, tuple[int, int]]:
    columns = (rows[name].to_pylist() for name in ("module", "device_self_ns", "self_ns"))
    return {module: (device or 0, host or 0) for module, device, host in zip(*columns, strict=True)}


def _list_ancestors(path: str) -> list[str]:
    """Return the paths from the outermost module to this one."""
    if path == NO_MODULE:
        return [path]
    pieces = path.split(SEPARATOR)
    return [SEPARATOR.join(pieces[: length + 1]) for length in range(len(pieces))]
