"""Make the traces of a job of many ranks from one real trace, with a known straggler and a known slow collective.

    python benchmarks/make_job.py trace.json.gz FOLDER --ranks 1024 --steps 20 --late-ms 15 --slow-ms 8

One step of the trace is repeated. Each rank has its own clock (hours apart, with a drift) and works a little
differently in each step. The ranks meet in their collectives as real ranks do: no rank leaves a collective before the
last rank has come. One rank works longer before one collective in every step; another collective takes longer on all
ranks. The planted faults, and what the job would gain without them, are written to FOLDER/truth.txt as JSON.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]
Event = dict[str, Any]
TRUTH = "truth.txt"
APART_S = 3 * 3600
DRIFT = 20e-6
NOISE_US = 100.0
"""Most time that a rank works longer before a collective than another rank by chance."""
LEAST_GAP_US = 50.0
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_MEETS = re.compile(r"allreduce|allgather|reducescatter|alltoall", re.IGNORECASE)
_STEP = re.compile(r"ProfilerStep#(\d+)")
_IDS = ("correlation", "External id", "Ev Idx", "Record function id")
_IDS_APART = 10_000_000
MOST_WORK = 250
"""Number of kernels and copies of a step that are kept, the longest ones."""


@dataclass(frozen=True)
class Plan:
    """The job to make: `late_ms` of extra work of one rank in every step, `slow_ms` of extra transfer in one
    collective."""

    ranks: int
    steps: int
    late_ms: float
    slow_ms: float
    seed: int = 0


@dataclass(frozen=True)
class Meeting:
    """One collective of the step: its times, the time at which the work before it can be made longer, and the time at
    which it can be made longer itself."""

    begin_us: float
    end_us: float
    work_at_us: float
    wait_at_us: float


@dataclass(frozen=True)
class Body:
    """The timed events of all steps as text without times, in `pieces`: the text before the start, between start and
    duration, and after the duration. `head` holds all other content."""

    head: str
    pieces: tuple[tuple[str, str, str], ...]
    start_us: Times
    end_us: Times


@dataclass(frozen=True)
class Job:
    """The traces of all ranks. `added_us` is the time added at each of the ascending `points_us`, one row per rank."""

    body: Body
    points_us: Times
    added_us: Times
    offset_ns: tuple[int, ...]
    drift: tuple[float, ...]


@dataclass(frozen=True)
class Truth:
    """The planted faults. `gain_ms` is what a step gains if the late rank is in time, up to the next late rank."""

    ranks: int
    steps: int
    rank: int
    late_ms: float
    gain_ms: float
    collective: int
    name: str
    slow_ms: float
    usual_ms: float


def write_job(trace: Path, folder: Path, plan: Plan, processes: int = 1) -> Truth:
    """Write one trace file for each rank, and the file with the planted faults."""
    job, truth = make_job(trace, plan)
    folder.mkdir(parents=True)
    write = partial(write_rank, job, folder)
    if processes > 1:
        with ProcessPoolExecutor(processes) as pool:
            list(pool.map(write, range(plan.ranks), chunksize=16))
    else:
        for rank in range(plan.ranks):
            write(rank)
    (folder / TRUTH).write_text(json.dumps(asdict(truth), indent=1), encoding="utf-8")
    return truth


def make_job(trace: Path, plan: Plan) -> tuple[Job, Truth]:
    """Read the trace, and add work and waiting so that its ranks meet, step by step."""
    content = trace.read_bytes()
    whole = json.loads(gzip.decompress(content) if trace.suffix == ".gz" else content)
    events, length_us = cut_step(whole["traceEvents"])
    meetings = find_meetings(events)
    random = np.random.default_rng(plan.seed)
    late = random.integers(0, plan.ranks)
    work = random.uniform(0, NOISE_US, (plan.ranks, plan.steps, len(meetings)))
    work[:, :, [at for at, one in enumerate(meetings) if gap_before(meetings, at) < LEAST_GAP_US]] = 0
    held_up = int(np.argmax([gap_before(meetings, at) for at in range(len(meetings))]))
    slow = choose_slow(meetings, held_up)
    work[late, :, held_up] += 1e3 * plan.late_ms
    wait = work.max(axis=0, keepdims=True) - work
    wait[:, :, slow] += 1e3 * plan.slow_ms
    points = [[one.work_at_us, one.wait_at_us] for one in meetings]
    added = np.stack([work, wait], axis=-1).reshape(plan.ranks, -1)
    rest = np.delete(work, late, axis=0).max(axis=0)
    truth = Truth(
        plan.ranks,
        plan.steps,
        int(late),
        plan.late_ms,
        float((work.max(axis=0) - rest).sum(axis=1).mean()) / 1e3,
        slow,
        find_name(events, meetings[slow]),
        plan.slow_ms,
        (meetings[slow].end_us - meetings[slow].begin_us) / 1e3,
    )
    steps = length_us * np.arange(plan.steps)
    job = Job(
        repeat(whole, events, steps, plan.ranks),
        (steps[:, None] + np.ravel(points)[None, :]).ravel(),
        added,
        tuple(int(value) for value in random.uniform(-APART_S, APART_S, plan.ranks) * 1e9),
        tuple(random.uniform(-DRIFT, DRIFT, plan.ranks).tolist()),
    )
    return job, truth


def cut_step(events: list[Event]) -> tuple[list[Event], float]:
    """Return the events of a step in the middle of the trace, with times since its start, and its length in µs. Most
    operators of the host and short kernels are left out."""
    steps = sorted(
        (event for event in events if _STEP.fullmatch(event.get("name", "")) and event.get("cat") == "user_annotation"),
        key=lambda event: float(event["ts"]),
    )
    middle = len(steps) // 2
    begin_us = float(steps[middle]["ts"])
    length_us = float(steps[middle + 1]["ts"]) - begin_us if middle + 1 < len(steps) else float(steps[middle]["dur"])
    timed = [event for event in events if event.get("ph") == "X" and event.get("cat") != "Trace"]
    calls = [event for event in timed if event["cat"] not in _DEVICE and is_in(event, begin_us, length_us)]
    launched = {find_correlation(event) for event in calls if "runtime" in event["cat"]}
    work = [event for event in timed if event["cat"] in _DEVICE and find_correlation(event) in launched]
    work.sort(key=lambda event: ("nccl" not in event["name"], -float(event["dur"])))
    work = work[:MOST_WORK]
    needed = {find_correlation(event) for event in work}
    kept = [event for event in calls if is_kept(event, needed)]
    named = [event for event in events if event.get("ph") == "M"]
    moved = [{**event, "ts": float(event["ts"]) - begin_us} for event in (*kept, *work)]
    return [*named, *sorted(moved, key=lambda event: event["ts"])], length_us


def is_in(event: Event, begin_us: float, length_us: float) -> bool:
    return begin_us <= float(event["ts"]) < begin_us + length_us and event["cat"] != "gpu_user_annotation"


def is_kept(event: Event, needed: set[int]) -> bool:
    """Return whether a host event is kept: events for steps and phases, and the launches of the device work."""
    if event["cat"] == "cpu_op":
        return event["name"].startswith("autograd::engine::evaluate_function") or "Collective name" in event["args"]
    return event["cat"] == "user_annotation" or find_correlation(event) in needed


def find_correlation(event: Event) -> int:
    return int(event.get("args", {}).get("correlation", -1))


def find_meetings(events: list[Event]) -> list[Meeting]:
    """Return the collectives of the step that all ranks leave together, in time order."""
    timed = [event for event in events if event.get("cat") in _DEVICE]
    calls = [event for event in timed if "nccl" in event["name"] and _MEETS.search(event["name"])]
    spans = [span(event) for event in timed if "nccl" not in event["name"]]
    found, last_us = [], 0.0
    for begin_us, end_us in sorted(map(span, calls)):
        before = [one for one in spans if last_us < one[0] and one[1] < begin_us]
        longest = max(before, key=lambda one: one[1] - one[0], default=(last_us, begin_us))
        idle = [at for _, at in spans if begin_us < at < end_us and not any(low < at < high for low, high in spans)]
        wait_at_us = idle[0] + 1e-3 if idle else end_us - 1e-3
        found.append(Meeting(begin_us, end_us, sum(longest) / 2, wait_at_us))
        last_us = end_us
    return found


def span(event: Event) -> tuple[float, float]:
    return event["ts"], event["ts"] + float(event["dur"])


def gap_before(meetings: list[Meeting], at: int) -> float:
    return meetings[at].begin_us - (meetings[at - 1].end_us if at else 0.0)


def choose_slow(meetings: list[Meeting], held_up: int) -> int:
    """Return a collective of middling length, but not the collective before which the rank is late."""
    times = [one.end_us - one.begin_us for one in meetings]
    others = [at for at in np.argsort(times).tolist() if at != held_up]
    return int(others[len(others) // 2])


def find_name(events: list[Event], meeting: Meeting) -> str:
    event = next(event for event in events if event.get("ts") == meeting.begin_us and "nccl" in event["name"])
    return str(event["args"].get("Collective name") or event["name"])


def repeat(whole: dict[str, Any], events: list[Event], steps: Times, ranks: int) -> Body:
    """Return the step repeated at each start in `steps`, each time with new ids, as text without times."""
    pieces, starts, ends = [], [], []
    named = [json.dumps(event) for event in events if event["ph"] == "M"]
    for number, begin_us in enumerate(steps.tolist()):
        for event in events:
            if event["ph"] == "M":
                continue
            text = json.dumps({**renumber(event, number, ranks), "ts": "@ts", "dur": "@dur"})
            before, rest = text.split('"@ts"')
            between, after = rest.split('"@dur"')
            pieces.append((before, between, after))
            starts.append(begin_us + event["ts"])
            ends.append(begin_us + event["ts"] + float(event["dur"]))
    told = {key: value for key, value in whole.items() if key in ("schemaVersion", "deviceProperties")}
    return Body(json.dumps({**told, "named": named}), tuple(pieces), np.array(starts), np.array(ends))


def renumber(event: Event, number: int, ranks: int) -> Event:
    own = copy.deepcopy(event)
    args = own.setdefault("args", {})
    for key in _IDS:
        if isinstance(args.get(key), int):
            args[key] += number * _IDS_APART
    if "Group size" in args:
        args["Group size"], args["Process Group Ranks"] = ranks, f"[0, 1, ..., {ranks - 1}]"
    if match := _STEP.fullmatch(own["name"]):
        own["name"] = f"ProfilerStep#{int(match[1]) + number}"
    return own


def write_rank(job: Job, folder: Path, rank: int) -> None:
    """Write the trace of one rank with its work and waits, on its own clock."""
    added = np.concatenate([[0.0], np.cumsum(job.added_us[rank])])
    start, end = (
        (times + added[np.searchsorted(job.points_us, times)]) * (1 + job.drift[rank])
        for times in (job.body.start_us, job.body.end_us)
    )
    told = json.loads(job.body.head)
    named = told.pop("named")
    told["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": job.added_us.shape[0]}
    told["baseTimeNanoseconds"] = 1_716_400_000 * 10**9 + job.offset_ns[rank]
    events = (
        f"{before}{begin:.3f}{between}{duration:.3f}{after}"
        for (before, between, after), begin, duration in zip(
            job.body.pieces, start.tolist(), (end - start).tolist(), strict=True
        )
    )
    text = f'{json.dumps(told)[:-1]}, "traceEvents": [\n' + ",\n".join([*named, *events]) + "\n]}\n"
    (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(text.encode(), 1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--late-ms", type=float, default=15.0)
    parser.add_argument("--slow-ms", type=float, default=8.0)
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    plan = Plan(given.ranks, given.steps, given.late_ms, given.slow_ms)
    print(json.dumps(asdict(write_job(given.trace, given.folder, plan, given.processes)), indent=1))
