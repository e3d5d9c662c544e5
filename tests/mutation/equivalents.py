"""Mutants that no test can notice, each with the reason. They are left out of the score."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutation.mutants import Mutant


@dataclass(frozen=True)
class Equivalent:
    """`line` is the changed line as the mutant has it, without the spaces around it."""

    file: str
    line: str
    reason: str


_LENGTHS = "The columns of one table are equally long."
_THREADS = "Threads change the order of the groups at most, and whether they do differs from run to run."
_INTERVALS = "collector/format/intervals.py"
_ROOFLINE = "profiler_server/analysis/operators/roofline.py"
_STATISTICS = "profiler_server/analysis/compare/run_statistics.py"
_DEVICE = "profiler_server/analysis/device/device.py"


def _list_same(file: str, reason: str, *lines: str) -> tuple[Equivalent, ...]:
    return tuple(Equivalent(file, line, reason) for line in lines)


_OUTCOME = _list_same(
    "profiler_server/diagnosis/outcome.py",
    "None of these phases is unchanged.",
    "return all((part.change_ns >= 0) for part in self.besides)",
    "longer = [part for part in self.besides if (part.change_ns >= 0)]",
)
_RING = (
    *_list_same(
        "collector/ring/words.py",
        "What follows in the header is zero, and so is the highest byte of a count of steps.",
        "_HEADER_USED = (63)",
        "_HEADER_USED = (128)",
    ),
    *_list_same(
        "collector/ring/words.py",
        "No thread has that identifier.",
        "self.thread[0] = (1)",
        "self.thread[0] = -(0)",
        "self.thread[0] = -(2)",
    ),
    *_list_same("collector/ring/words.py", "A log of one word was never of use.", "if capacity & (capacity - (2)):"),
    *_list_same("collector/ring/words.py", "A process that ends gives it back.", "close.atexit = (True)"),
    *_list_same(
        "collector/ring/words.py", "How much is looked at at a time is no matter.", "size *= (1)", "size *= (4)"
    ),
    *_list_same(
        "collector/ring/words.py",
        "Nothing is cleared then, or nothing is there to skip.",
        "if (last < first):",
        "if (start + count >= self.capacity):",
        "if (self.position > head and self._words[self.position % self.capacity]):",
    ),
    *_list_same(
        "collector/ring/words.py",
        "All slots are cleared, whichever comes first.",
        "self._copy.add((1), np.zeros(self.capacity, np.int64))",
    ),
    *_list_same(
        "collector/ring/words.py",
        "The flag is in the lowest byte.",
        "return any(os.pread(descriptor, (7), _FINISHED_SLOT * 8))",
    ),
    *_list_same(
        "collector/ring/records.py",
        "How much is looked at at a time is no matter, and a look ends with the file.",
        "_FIRST_LOOK = (63)",
        "_FIRST_LOOK = (128)",
        "size *= (1)",
        "size *= (4)",
        "size = min(count, self._capacity - first) * self._words * (16)",
        "size = (max(count, self._capacity - first)) * self._words * 8",
        "size = min(count, (self._capacity + first)) * self._words * 8",
    ),
    *_list_same(
        "collector/ring/records.py",
        "No descriptor is negative.",
        "descriptor, self._descriptor = self._descriptor, -(2)",
    ),
    *_list_same(
        "collector/ring/records.py",
        "The flag is in the lowest byte, and the word after it is zero.",
        "return any(os.pread(self._descriptor, (7), _CLOSED_OFFSET))",
        "return any(os.pread(self._descriptor, (16), _CLOSED_OFFSET))",
    ),
    *_list_same(
        "collector/ring/records.py",
        "Looking at all slots finds no other records; it only takes longer.",
        "if (records[count:, 0] > (self.position - 1)).any():",
        "if ((records[count:, 0] >= self.position + 1)).any():",
        "if (records[count:, 0] > self.position + (0)).any():",
    ),
    *_list_same("collector/ring/records.py", "Without a header the size is not asked.", 'header, size = b"", (1)'),
)
_WORK = (
    *_list_same(
        _DEVICE,
        "Room for a track that there is not.",
        "device_of = np.zeros(max(streams, default=0) + (2), np.int64)",
        "device_of = np.zeros(max(streams, default=(1)) + 1, np.int64)",
    ),
)

EQUIVALENTS: tuple[Equivalent, ...] = (
    *_RING,
    *_OUTCOME,
    *_WORK,
    Equivalent(
        _INTERVALS,
        "_EARLIEST, _LATEST = np.int64(-((2) << 62)), np.int64(1 << 62)",
        "It is earlier still: no time lies before either.",
    ),
    Equivalent(
        _INTERVALS,
        "starts, ends = starts[solid].astype(np.int64, copy=(True)), ends[solid].astype(np.int64, copy=False)",
        "A copy holds the same numbers.",
    ),
    Equivalent(
        _INTERVALS,
        "starts, ends = starts[solid].astype(np.int64, copy=False), ends[solid].astype(np.int64, copy=(True))",
        "A copy holds the same numbers.",
    ),
    Equivalent(
        _INTERVALS,
        "if ((starts[1:] <= starts[:-1])).any():  # slices come sorted: millions need no second sort",
        "Sorting what is sorted already, stably, changes nothing.",
    ),
    Equivalent(
        _ROOFLINE,
        'for name, dtypes in zip(known["name"].to_pylist(), known["input_dtypes"].to_pylist(), strict=(False))',
        _LENGTHS,
    ),
    Equivalent(
        _ROOFLINE,
        'summed = plain.group_by(list(KEYS), use_threads=(True)).aggregate([(name, "sum") for name in measures])',
        _THREADS,
    ),
    Equivalent(
        _ROOFLINE,
        "rows = zip(*(kernels[name].to_pylist() for name in kernels.column_names), strict=(False))",
        _LENGTHS,
    ),
    Equivalent(
        _ROOFLINE,
        'busy = kernels.group_by("device", use_threads=(True)).aggregate([("total_ns", "sum")])',
        _THREADS,
    ),
    Equivalent(
        _STATISTICS,
        "if len(values) < (3) or not values.std():",
        "Half of three steps is one, and so is their longest block.",
    ),
)


def find_equivalent(mutant: Mutant) -> Equivalent | None:
    """Return why no test can notice a mutant, None where one should."""
    return next((entry for entry in EQUIVALENTS if (entry.file, entry.line) == (mutant.path, read_line(mutant))), None)


def read_line(mutant: Mutant) -> str:
    """Return the changed line without the spaces around it."""
    return mutant.source.splitlines()[mutant.line - 1].strip()
