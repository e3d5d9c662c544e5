"""Words that are written to a log and read back."""

from __future__ import annotations

from collector.ring.codes import STEP_MARK
from collector.ring.words import NOTHING, PAYLOAD_MASK, WordLog, WordReader


def write(log: WordLog, payloads: range) -> None:
    for payload in payloads:
        log.write(STEP_MARK, payload)


def read(reader: WordReader) -> list[int]:
    return [word & PAYLOAD_MASK for word in reader.read().tolist() if word >> 56 != NOTHING]
