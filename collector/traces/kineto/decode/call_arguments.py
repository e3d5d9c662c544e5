"""What differs from call to call in the arguments of events: read, and taken out of their texts.

Without it the arguments of a million events are a few thousand different texts, and each of those is parsed once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from collector.format.intervals import Ints, Mask
from collector.traces.kineto.decode.argument_templates import Keys, find_templates
from collector.traces.kineto.decode.events import IDENTITIES, IDENTITY, NO_ID, Identity, decode_each, read_ids
from collector.traces.kineto.decode.numbering import Numbers

CALL_IDS = ("correlation", "External id", "external id", "Sequence number")
CALL_NAMES = (
    *CALL_IDS,
    *("Ev Idx", "external ts", "Record function id", "Python id", "Python parent id"),
    *("Profiler Event Index", "Trace iteration"),
)
"""What is kept in columns of its own, or only numbers events within the file."""
_KEYS = Keys(CALL_NAMES, len(CALL_IDS))
_COLUMN_OF_ID = ((0, 0), (2, 1), (1, 1), (3, 2))
"""For ids by place in CALL_IDS the column that each belongs to; of two the last one counts."""
_PATTERN = re.compile(
    rb'"(?:%s)"\s*+:\s*+(?:[^",}\]\0]++|"[^"\0]*+")?+(?:,\s*+)?+' % "|".join(map(re.escape, CALL_NAMES)).encode()
)


@dataclass(frozen=True)
class CallArguments:
    """The arguments of events: `number` is the place in `texts`, which are in the order of the events; ids are -1 for none."""

    number: Ints
    texts: tuple[bytes, ...]
    correlation: Ints
    external: Ints
    sequence: Ints


def read_call_arguments(raws: Sequence[msgspec.Raw], linked: Mask) -> CallArguments:
    """Read the arguments of events. The ids of those that are not linked are not looked at."""
    found = find_templates(raws, _KEYS)
    pieces, ids = read_each(found.texts)
    ids = ids[:, found.number]
    for key, column in _COLUMN_OF_ID:
        ids[column] = np.where(found.told[key], found.values[key], ids[column])
    if not linked.all():
        ids = np.where(linked, ids, NO_ID)
    numbers = Numbers()
    number = np.array([numbers[piece] for piece in pieces], np.int64)[found.number]
    return CallArguments(number, tuple(numbers), *ids)


def read_each(raws: Sequence[bytes]) -> tuple[list[bytes], Ints]:
    """Return each of some texts without what differs per call, and the three ids of each."""
    known = decode_each([raw or b"{}" for raw in raws], IDENTITY, IDENTITIES)
    entries = [Identity() if entry is None else entry for entry in known]
    external = [entry.external if entry.external is not None else entry.external_old for entry in entries]
    columns = ([entry.correlation for entry in entries], external, [entry.sequence for entry in entries])
    # No JSON holds this byte, and the pattern stops at it.
    return _PATTERN.sub(b"", b"\0".join(raws)).split(b"\0"), np.stack([read_ids(column) for column in columns])
