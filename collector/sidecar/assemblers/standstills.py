"""Detection of a training thread that stands still. A standstill is noted in rank.json while it lasts, and in one line
on the terminal.

A silence is the time since the last word of the training thread in the log. The limit of a silence comes from the run
itself. It is the longest of three times: twenty usual steps (at most five minutes), twice the longest silence that was
no standstill, and half a minute. This limit is for ranks that stand at different places of the script. Ranks at the
same place may do long work, which looks like a hang, so their limit is twice as long. It is ten times as long if the
process is at work, or outside of every known call, where a script may evaluate, save or download.

A standstill that ended stays in rank.json, so that averages leave its step out. A silence that recurs regularly belongs
to the normal run, and is left out of rank.json.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from collector.format.phases import PHASE_NAMES
from collector.format.rank import RankRun
from collector.format.schema.layout import find_ranks
from collector.format.standstills import FACT, MOST_KEPT, REGULAR_TIMES, Standstill
from collector.format.steps import is_kind
from collector.hangs.live import (
    Standing,
    describe_innermost,
    describe_live_hang,
    find_standing,
    is_long_work,
    is_standstill,
    read_threshold_ns,
    waits_for_ranks,
)
from collector.hangs.positions import list_ranks
from collector.notes import read_notes
from collector.ring.clock import Clock
from collector.sidecar.assembler import Assembler
from collector.sidecar.steps.rows import UNKNOWN, Moment
from collector.sidecar.terminal import say_on_terminal

START_TIMES = 10
"""Factor on the shortest limit (half a minute) until the second step has ended: the first steps compile, start workers
and fill caches."""
STEPS = 20
MOST_STEPS_NS = 300 * 10**9
SILENCES = 2
ALONE_TIMES, WORKING_TIMES = 2, 10
HELD_NS = 5 * 10**9
"""Gap between two reads of the log, normally 0.2 s, from which the whole machine counts as held up."""
BUSY_FRAC = 0.5
"""Share of a processor above which the process is at work."""
_NOTED_NS = 10 * 10**9
_LOOK_S = 3.0
_RECENT = 200


class StandstillAssembler(Assembler):
    """Detects standstills from the end of the event log and the processor time of a silent process; makes no table."""

    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        super().__init__(rank_folder, clock)
        notes = read_notes(rank_folder)
        self._rank, self._pid, self._terminal = notes.rank, notes.pid, notes.terminal
        self._least_ns = read_threshold_ns()
        self._is_on = self._least_ns > 0 and not notes.finished
        self._steps: Any = None
        self._stacks: Any = None
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._moment: Moment | None = None
        self._still_ns = self._longest_ns = 0
        self._seen_ns = self._held_ns = 0
        self._cpu: tuple[int, float] | None = None
        self._looked_s = 0.0
        self._has_spoken = False
        self._found: Standstill | None = None
        self._silences_ns: deque[int] = deque(maxlen=_RECENT)
        self._kept: list[Standstill] = []

    def listen(self, others: Mapping[str, Assembler]) -> None:
        self._steps, self._stacks = others.get("steps"), others.get("stacks")

    def watch(self, table: str, rows: pa.Table) -> None:
        if table == "steps":
            train = rows.filter(is_kind(rows, "train"))
            self._recent.extend(train["duration_ns"][-_RECENT:].to_pylist())

    def poll(self) -> dict[str, pa.Table]:
        if self._is_on and self._steps is not None:
            # Not until now: this process may have waited for a disk since it read the log.
            self._see(self._steps.read_moment(), self._steps.looked_ns)
            if self._still_ns >= self._find_limit_ns():
                self._look()
        return {}

    def finish(self) -> dict[str, pa.Table]:
        if read_notes(self.rank_folder).finished:  # it got on, and has ended by itself
            self._end_silence()
            self._still_ns = 0
        return {}

    def describe(self) -> dict[str, Any]:
        standing = self._describe_standing()
        facts: dict[str, Any] = {"standing": standing} if standing else {}
        if kept := self._choose_kept():
            facts[FACT] = [one.write() for one in kept]
        return {"facts": facts} if facts else {}

    def _describe_standing(self) -> dict[str, Any] | None:
        moment = self._moment
        if moment is None or self._still_ns < min(_NOTED_NS, self._least_ns):
            return None
        stack, limit_ns = self._find_stack(moment), self._find_limit_ns()
        works = self._works(stack)
        may_work = works or moment.phase == UNKNOWN
        return {
            "for_ns": self._still_ns,
            "limit_ns": limit_ns,
            "alone_limit_ns": limit_ns * (WORKING_TIMES if may_work else ALONE_TIMES),
            "step": moment.step + 1,
            "phase": _name_phase(moment.phase),
            "after": _name_phase(moment.previous),
            "stack": describe_innermost(stack),
            "works": works,
            "waits": waits_for_ranks(stack),
        }

    def _choose_kept(self) -> list[Standstill]:
        """Return the longest standstills that the job got over, without those that recur regularly."""
        rare = [one for one in self._kept if not self._is_regular(one)]
        return sorted(rare, key=lambda one: -one.for_ns)[:MOST_KEPT]

    def _is_regular(self, one: Standstill) -> bool:
        return sum(2 * silence_ns >= one.for_ns for silence_ns in self._silences_ns) >= REGULAR_TIMES

    def _see(self, moment: Moment | None, now_ns: int) -> None:
        """Update the length of the silence. `moment` is None while nothing is recorded; `now_ns` is the last read."""
        before, self._moment = self._moment, moment
        since_last_ns = now_ns - (self._seen_ns or now_ns)
        self._seen_ns, self._held_ns = now_ns, self._held_ns + (since_last_ns if since_last_ns > HELD_NS else 0)
        if moment is None or before is None or moment.since != before.since:
            if before is not None and before.step > 1:
                self._end_silence()
            self._still_ns, self._held_ns, self._cpu = 0, 0, None
        if moment is not None:
            self._still_ns = max(now_ns - moment.since - self._held_ns, 0)
            if self._cpu is None and self._still_ns >= min(_NOTED_NS, self._least_ns) // 2:
                self._cpu = now_ns, self._read_cpu_s()

    def _find_limit_ns(self) -> int:
        if self._moment is None or self._moment.step < 2 or not self._recent:
            return START_TIMES * self._least_ns
        usual_ns = STEPS * int(statistics.median(self._recent))
        return max(self._least_ns, min(usual_ns, MOST_STEPS_NS), SILENCES * self._longest_ns)

    def _end_silence(self) -> None:
        """Keep the silence that is over if it was a standstill; else, or if it recurs, raise the limit."""
        if self._still_ns >= self._least_ns:
            self._silences_ns.append(self._still_ns)
        if self._found is None:
            self._longest_ns = max(self._longest_ns, self._still_ns)
        else:
            self._kept.append(replace(self._found, for_ns=self._still_ns, ended_unix_ns=time.time_ns()))
        regular = [one.for_ns for one in self._kept if self._is_regular(one)]
        self._longest_ns = max(self._longest_ns, *regular, 0)
        self._found, self._looked_s = None, 0.0

    def _works(self, stack: str) -> bool:
        if is_long_work(stack):
            return True
        if self._cpu is None:
            return False
        begun_ns, used_s = self._cpu
        elapsed_s = (time.perf_counter_ns() - begun_ns) / 1e9
        return elapsed_s > 0 and (self._read_cpu_s() - used_s) / elapsed_s >= BUSY_FRAC

    def _read_cpu_s(self) -> float:
        try:
            times = psutil.Process(self._pid).cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.user + times.system)

    def _find_stack(self, moment: Moment) -> str:
        return "" if self._stacks is None else str(self._stacks.find_newest(moment.since))

    def _look(self) -> None:
        """Look for a standstill in what all ranks have noted. One rank writes a line on it to the terminal."""
        now_s = time.monotonic()
        if (self._has_spoken and self._found is not None) or now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        run_path = self.rank_folder.parents[1]
        ranks = [RankRun(run_path, rank) for rank in find_ranks(run_path)]
        found = find_standing(ranks)
        if found is None:
            return
        self._found = self._note(found)
        if not self._has_spoken and found.speaker == self._rank:
            say_on_terminal(self._pid, self._terminal, f"stepscope: {describe_live_hang(found)} ({run_path})")
        self._has_spoken = True

    def _note(self, found: Standing) -> Standstill | None:
        """Return the record of a standstill; None if a rank that holds up the job is at work."""
        moment = self._moment
        if moment is None or not is_standstill(found):
            return None
        return Standstill(
            rank=self._rank,
            step=moment.step + 1,
            for_ns=self._still_ns,
            ended_unix_ns=time.time_ns(),
            phase=_name_phase(moment.phase),
            after=_name_phase(moment.previous),
            stack=describe_innermost(self._find_stack(moment)),
            missing=list_ranks(found.stop.missing) if found.stop is not None else found.gone,
        )


def _name_phase(phase: int) -> str:
    return PHASE_NAMES[phase] if phase != UNKNOWN else ""


ASSEMBLER = StandstillAssembler
