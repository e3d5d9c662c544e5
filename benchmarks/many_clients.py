"""Pages for many people at once: `python benchmarks/many_clients.py [BASE_DIR] [clients] [seconds]`.

Starts a server with the runs below BASE_DIR, or five runs built here. Each client requests pages of the first five runs
at random, one after another over one connection, as fast as the answers come. The clients share one process. Prints the
answers, their times, the failures, and the memory of the server. With `--revalidate` the clients send the tags of
earlier answers, as browsers do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.runs import RunPlan, build_run, slow_loader_plan
from tests.support.serving import serve

RUNS = 5
PAGES: tuple[str, ...] = (
    "",
    "steps",
    "operators",
    "operators?group=kernels",
    "data?tab=interval",
    "data?tab=processing",
)
PAGES += ("memory", "device", "ranks", "timeline")
MARK_MS = 1000.0


@dataclass
class Tally:
    times_ms: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    bytes: int = 0


def build_runs(base_dir: Path) -> None:
    for name in ("read", "transform", "collate"):
        build_run(base_dir / name, slow_loader_plan(name))
    build_run(base_dir / "ranks", RunPlan(steps=200, ranks=4))
    build_run(base_dir / "long", RunPlan(steps=2000))


def list_addresses(server: str) -> list[str]:
    with urllib.request.urlopen(f"{server}/api/v1/runs", timeout=60) as answer:
        runs = json.load(answer)["runs"][:RUNS]
    return ["/", *(f"/runs/{urllib.parse.quote(run['id'])}/{page}" for run in runs for page in PAGES)]


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, tag: str) -> tuple[int, str, int]:
    """Request a page. Return status, tag and length of the answer."""
    known = f"If-None-Match: {tag}\r\n" if tag else ""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{known}\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head.splitlines()[1:])}
    length = int(fields.get("content-length", 0))
    await reader.readexactly(length)
    return int(head.split(" ", 2)[1]), fields.get("etag", ""), length


async def act(number: int, server: str, addresses: list[str], until_s: float, tally: Tally, revalidate: bool) -> None:
    """Request random pages as one client until a time, and add the answers to the tally."""
    chosen = random.Random(number)
    tags: dict[str, str] = {}
    place = urllib.parse.urlsplit(server)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    while time.monotonic() < until_s:
        path = chosen.choice(addresses)
        begin = time.perf_counter()
        try:
            status, tag, length = await ask(reader, writer, path, tags.get(path, ""))
        except (OSError, EOFError) as error:
            tally.statuses[type(error).__name__] += 1
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            continue
        tally.times_ms.append(1e3 * (time.perf_counter() - begin))
        tally.statuses[str(status)] += 1
        tally.bytes += length
        if revalidate:
            tags[path] = tag
    writer.close()


async def crowd(server: str, clients: int, seconds: float, revalidate: bool) -> Tally:
    addresses = list_addresses(server)
    tally = Tally()
    until_s = time.monotonic() + seconds
    await asyncio.gather(*(act(n, server, addresses, until_s, tally, revalidate) for n in range(clients)))
    return tally


def find_server(server: str) -> psutil.Process:
    port = urllib.parse.urlsplit(server).port
    children = psutil.Process().children(recursive=True)
    return next(p for p in children if any(c.laddr.port == port for c in p.net_connections() if c.status == "LISTEN"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("base_dir", nargs="?", type=Path)
    parser.add_argument("clients", nargs="?", type=int, default=100)
    parser.add_argument("seconds", nargs="?", type=float, default=60.0)
    parser.add_argument("--revalidate", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stepscope-clients-") as folder:
        base_dir = given.base_dir or Path(folder)
        if given.base_dir is None:
            build_runs(base_dir)
            time.sleep(2.5)  # files that were just written count as still changing
        with serve(base_dir) as server:
            process = find_server(server)
            before = process.cpu_times()
            tally = asyncio.run(crowd(server, given.clients, given.seconds, given.revalidate))
            after = process.cpu_times()
            memory = process.memory_info().rss
    p50, p95, p99 = np.percentile(tally.times_ms, [50, 95, 99])
    answers = len(tally.times_ms)
    cpu_s = after.user + after.system - before.user - before.system
    print(
        f"{answers:,} answers, {answers / given.seconds:.0f}/s, {tally.bytes / 1e6:,.0f} MB, by status {dict(tally.statuses)}"
    )
    print(f"p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms, longest {max(tally.times_ms):.0f} ms")
    print(
        f"the server used {cpu_s:.1f} s of processor, {1e3 * cpu_s / answers:.1f} ms an answer, and holds {memory >> 20} MiB"
    )
    failed = sum(count for status, count in tally.statuses.items() if status not in ("200", "304"))
    print(f"the mark is no error and p95 under {MARK_MS:.0f} ms: {'met' if not failed and p95 < MARK_MS else 'missed'}")


if __name__ == "__main__":
    main()
