"""Grow a real trace to a size: repeat its events, each copy later in time and with new ids.

    python benchmarks/grow_trace.py trace.json.gz grown.json --megabytes 300

Steps, correlations, external ids and sequence numbers go on from copy to copy, so that the grown trace is one long
recording with the same links as the original.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path
from typing import Any

_IDS = ("correlation", "External id", "external id", "Sequence number", "Ev Idx", "Record function id")
_STEP = re.compile(r"(ProfilerStep#)(\d+)$")
_GAP_US = 100


def grow(source: Path, target: Path, megabytes: float) -> int:
    """Write the grown trace and return its number of events."""
    content = source.read_bytes()
    trace = json.loads(gzip.decompress(content) if source.suffix == ".gz" else content)
    events = trace.pop("traceEvents")
    timed = [event for event in events if event.get("ph") != "M"]
    first = min(event["ts"] for event in timed)
    period = max(event["ts"] + event.get("dur", 0) for event in timed) - first + _GAP_US
    spread = {key: 1 + max((_read_id(event, key) for event in timed), default=0) for key in _IDS}
    steps = 1 + len({event["name"] for event in timed if _STEP.match(str(event.get("name")))})
    count = 0
    with target.open("w", encoding="utf-8") as out:
        out.write(json.dumps(trace)[:-1] + ', "traceEvents": [\n')
        out.write(",\n".join(json.dumps(event) for event in events))
        copy = 0
        while out.tell() < megabytes * 1e6:
            copy += 1
            moved = (_move(event, copy, copy * period, spread, steps) for event in timed)
            out.write(",\n" + ",\n".join(map(json.dumps, moved)))
        count = len(events) + copy * len(timed)
        out.write("\n]}\n")
    return count


def _read_id(event: dict[str, Any], key: str) -> int:
    value = (event.get("args") or {}).get(key, 0)
    return value if isinstance(value, int) else 0


def _move(event: dict[str, Any], copy: int, offset: float, spread: dict[str, int], steps: int) -> dict[str, Any]:
    moved = {**event, "ts": _round(event["ts"] + offset)}
    match = _STEP.match(str(event.get("name")))
    if match:
        moved["name"] = f"{match.group(1)}{int(match.group(2)) + copy * steps}"
    if isinstance(event.get("id"), int):
        moved["id"] = event["id"] + copy * spread["correlation"]
    args = event.get("args")
    if args:
        moved["args"] = {
            key: value + copy * spread[key] if key in spread and isinstance(value, int) and value > 0 else value
            for key, value in args.items()
        }
    return moved


def _round(value: float) -> float:
    return value if isinstance(value, int) else round(value, 3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--megabytes", type=float, default=100.0)
    given = parser.parse_args()
    print(f"{grow(given.source, given.target, given.megabytes):,} events in {given.target}")
