"""What a collective moved: its name, and the bytes of its message, from the kernel or from the host calls around it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import numpy as np

from collector.format.words import find_element_bytes
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.collectives import find_collective
from collector.traces.kineto.model import Trace

_SPAN_PREFIXES = ("nccl:", "gloo:", "rccl:", "xccl:", "mpi:", "ucc:")


class Messages:
    """The collectives in some rows: kernels of collectives, or host spans. Every list has one entry for each.

    Newer traces tell of each kernel what it moved; older ones have the shapes of the host span that launched it.
    """

    def __init__(self, trace: Trace, rows: Ints) -> None:
        arguments = trace.arguments
        self._trace, self._rows = trace, rows
        at = np.where(trace.links.launch[rows] >= 0, trace.links.launch[rows], rows)
        self._around = [rows, trace.owner[at], trace.caller[at]]
        args = trace.columns.args[rows].tolist()
        given, dtypes = arguments.texts("Collective name"), arguments.texts("dtype")
        self.dtypes = [dtypes[code] for code in args]
        self.group_sizes = self._first(arguments.integers("Group size"))
        self.sequences = self._first(arguments.integers("Seq", "seq_num"))
        self.names = [given[code] or self._name(row) for row, code in enumerate(args)]
        self._elements = arguments.integers("In msg nelems"), arguments.integers("Out msg nelems")
        self._dims, self._types = arguments.texts("Input Dims", "Input dims"), arguments.texts("Input type")

    def sizes(self) -> Ints:
        """Return the bytes of each message, -1 where they are not known.

        That of a gather is what every rank has in the end, that of a scatter what it had before, as bandwidths count them.
        """
        elements = np.maximum(*(self._first(values) for values in self._elements))
        found = []
        for row, (count, dtype) in enumerate(zip(elements.tolist(), self.dtypes, strict=True)):
            item_bytes = find_element_bytes(dtype or "")
            found.append(count * item_bytes if count >= 0 and item_bytes else self._measure_inputs(row))
        return np.array(found, np.int64)

    def _first(self, values: Ints) -> Ints:
        """Return the first value that the row or a host call around it has, -1 for none."""
        found = np.full(len(self._rows), -1, np.int64)
        for rows in reversed(self._around):
            own = np.where(rows >= 0, values[self._trace.columns.args[rows]], -1)
            found = np.where(own >= 0, own, found)
        return found

    def _list_around(self, row: int) -> Iterator[int]:
        return (int(rows[row]) for rows in self._around if rows[row] >= 0)

    def _name(self, row: int) -> str:
        """Name it after the host span: an all-to-all sends and receives, so its kernel says something else."""
        names = [self._trace.names[self._trace.columns.name[around]] for around in self._list_around(row)]
        for name in names:
            found = find_collective(name)
            if name.startswith(_SPAN_PREFIXES) and found != name:
                return found
        return find_collective(names[0])

    def _measure_inputs(self, row: int) -> int:
        for around in self._list_around(row):
            code = int(self._trace.columns.args[around])
            size = _sum_tensors(self._dims[code], self._types[code])
            if size > 0:
                gathers = self.names[row].replace("_", "").endswith("allgather")
                ranks = int(self.group_sizes[row])
                return size * ranks if gathers and ranks > 0 else -1 if gathers else size
        return -1


def _sum_tensors(dims: str | None, types: str | None) -> int:
    """Return the bytes of the tensors that an operator was given, 0 if they are not known."""
    try:
        shapes, names = json.loads(dims or "[]"), json.loads(types or "[]")
        known = [(shape, find_element_bytes(str(name))) for shape, name in zip(shapes, names, strict=False)]
        return sum(math.prod(shape) * size for shape, size in known if shape and size)
    except (ValueError, TypeError, RecursionError):
        return 0
