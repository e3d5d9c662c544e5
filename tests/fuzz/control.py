"""What reaches a training from outside: control.json, options, and the variables of its environment.

The training must go on. So nothing here may raise but what the collector declares, and nothing may hold it up.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from collector.environment import find_rank
from collector.format.schema.control import WindowRequest, write_control
from collector.format.schema.layout import control_file, events_path, rank_path
from collector.launch.activation import read_settings
from collector.launch.barrier import TIMEOUT_S, VARIABLE, Barrier, find_barrier
from collector.marks import outlet
from collector.notes import NOTES_FILE, WORDS_FILE, Notes, write_notes
from collector.options import Options, parse_options
from collector.ring.clock import Clock
from collector.ring.windows import read_order
from collector.ring.words import WordLog
from collector.session.place import find_launch_id
from collector.sidecar.assemblers.control import ControlAssembler
from collector.sidecar.gpu import Gpus
from tests.fuzz.asking import Server
from tests.fuzz.files import choose_form, replaced
from tests.fuzz.frame import Case, HarmError
from tests.fuzz.mutations import ODD_VALUES, spoil_json, write_odd
from tests.support import forking
from tests.support.runs import RunPlan, build_run

_ORDERS = (
    b'{"window": {"first": 500, "count": 5}}',
    b'{"window": [7, 2]}',
    b'{"window": {"first": 0, "count": 1}, "x": [1]}',
)
_OPTIONS = (
    b'{"window": [100, 5], "level": "debug", "data_pipeline": true, "activities": ["cpu"], "keep_events": false}',
    b'{"window": {"first": 3, "count": 0}, "memory": false, "resources": false, "triggers": true}',
    b'{"level": "important", "window": "auto"}',
)
_BARRIER = Barrier("/nowhere", "0", 2, 0.05)
_VARIABLES = (
    *(
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "SLURM_PROCID",
        "OMPI_COMM_WORLD_RANK",
        "CUDA_VISIBLE_DEVICES",
        "MASTER_ADDR",
    ),
)
_WORDS = (
    *("", "0", "-1", "1e9", " 7 ", "9" * 400, "٣", "0x1", "nan", "all", "GPU-x,,1", "\udcff", "0,1,", "a" * 100_000),
    "1\n2",
)

ROOT = Path(__file__).parents[2]

TRAINING = """
import sys, time
from pathlib import Path
import collector.auto, collector
for number in range(6):
    with collector.record("step"):
        time.sleep(0.05)
    for folder in Path("out").glob("profiler"):
        (folder / "control.json").write_bytes(Path("control").read_bytes())
print("trained")
sys.exit(7)
"""


def train(folder: Path, variables: dict[str, str], control: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run a small training of its own among hostile words; the caller looks at how it ended."""
    (folder / "control").write_bytes(control)
    (folder / "train.py").write_text(TRAINING, "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PROFILER_OUTPUT_PATH": "out", **variables}
    return forking.run([sys.executable, "train.py"], cwd=folder, env=environment, text=False, timeout=120)


class Control:
    """Reads what is given as the collector and the server do."""

    name = "control"

    def __init__(self, folder: Path) -> None:
        self._run = build_run(folder / "runs/live", RunPlan(steps=6, state="recording"))
        self._rank = rank_path(self._run, 0)
        events_path(self._rank).mkdir()
        self._log = WordLog(events_path(self._rank) / WORDS_FILE, 1 << 10)
        clock = Clock.start()
        times = (clock.epoch_unix_ns, clock.perf_ns, clock.unix_ns)
        write_notes(Notes(0, 1, None, "here", 0, *times, options=Options().as_dict()), self._rank)
        self._notes = events_path(self._rank) / NOTES_FILE
        write_control(self._run, WindowRequest(1, 1))
        self._assembler = ControlAssembler(self._rank, clock)
        self._server = Server(folder / "runs")

    def make(self, chance: random.Random) -> Case:
        how = chance.choice(("file", "file", "file", "options", "options", "body", "barrier", "notes", "environment"))
        if how == "environment":
            values = {name: chance.choice(_WORDS) for name in chance.sample(_VARIABLES, 3)}
            return Case(json.dumps([how]), json.dumps(values).encode())
        if how == "notes":
            return Case(json.dumps([how, choose_form(chance)]), spoil_json(chance, self._notes.read_bytes()))
        if how == "barrier":
            return Case(json.dumps([how]), spoil_json(chance, _BARRIER.encode().encode()))
        if how == "body":
            return Case(json.dumps([how]), spoil_json(chance, b'{"first": 5, "count": 3}'))
        if how == "options":
            return Case(json.dumps([how]), spoil_json(chance, chance.choice(_OPTIONS)))
        if chance.random() < 0.1:
            return Case(json.dumps([how, "file"]), write_odd(chance, {"window": [chance.choice(ODD_VALUES), 3]}))
        return Case(json.dumps([how, choose_form(chance)]), spoil_json(chance, chance.choice(_ORDERS)))

    def check(self, case: Case) -> bool:
        how, *form = json.loads(case.place)
        if how == "file":
            return self._check_file(form[0], case.content)
        if how == "notes":
            with (
                replaced(self._notes, form[0], case.content),
                set_variables({outlet.EVENTS_VARIABLE: str(self._notes.parent)}),
            ):
                return outlet._find_inherited() is not None
        if how == "body":
            return (
                self._server.ask("/api/v1/runs/live/window", "POST", case.content, "application/json").status_code < 300
            )
        text = case.content.decode("utf-8", "surrogateescape").replace("\0", "0")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            return {
                "options": self._check_options,
                "barrier": self._check_barrier,
                "environment": self._check_variables,
            }[how](text, said)

    def _check_file(self, form: str, content: bytes) -> bool:
        with replaced(control_file(self._run), form, content):
            self._assembler.poll()
            warnings = [warn.text for warn in self._assembler.describe()["warnings"]]
            self._assembler.checkpoint()
            answers = [self._server.ask(address) for address in ("/runs/live/steps", "/api/v1/runs/live/live")]
        # A run with a link inside is refused as a whole.
        if any(answer.status_code != 200 for answer in answers) and form not in ("link", "endless", "loop"):
            raise HarmError(f"the pages of the run fail: {[answer.text[-200:] for answer in answers]}")
        if any("\n" in warning or len(warning) > 2000 for warning in warnings):
            raise HarmError(f"not one line: {warnings[0][:300]!r}")
        order = read_order(events_path(self._rank) / WORDS_FILE)
        if order is not None and not 1 <= order.count <= 1000:
            raise HarmError(f"an order that cannot be carried out: {order}")
        return not warnings

    def _check_options(self, text: str, said: io.StringIO) -> bool:
        settings = read_settings("/nowhere", None, {"PROFILER_OPTIONS": text})
        json.dumps(parse_options(settings.options).as_dict()).encode()
        if any(len(line) > 2000 for line in said.getvalue().splitlines()):
            raise HarmError(f"a line of {len(said.getvalue())} letters: {said.getvalue()[:200]}")
        return not said.getvalue()

    def _check_barrier(self, text: str, said: io.StringIO) -> bool:
        with set_variables({VARIABLE: text}):
            found = find_barrier()
        if found is None:
            return False
        if not 0 <= found.timeout_s <= TIMEOUT_S:
            raise HarmError(f"a training may wait for {found.timeout_s} s")
        if found.timeout_s < 1:
            found.wait("begin")
        return True

    def _check_variables(self, text: str, said: io.StringIO) -> bool:
        values = {name: str(value) for name, value in json.loads(text).items()}
        with set_variables(values):
            rank, world = find_rank()
            find_launch_id()
            Gpus([], os.environ.get("CUDA_VISIBLE_DEVICES"), os.getpid())
        if not 0 <= rank < world:
            raise HarmError(f"rank {rank} of {world}")
        return True

    def verify(self) -> None:
        self._server.ask("/")

    def close(self) -> None:
        self._log.close()
        self._server.close()


@contextlib.contextmanager
def set_variables(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


KIND = Control
