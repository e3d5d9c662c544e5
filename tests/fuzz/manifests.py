"""Manifests of a run that somebody else wrote: run.json, rank.json, and the notes that a training leaves to its recorder."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

from collector.format.schema import layout
from collector.format.schema.errors import OutputError, StepscopeError
from collector.notebook.run import open_run
from collector.notes import WORDS_FILE, Notes, read_notes, write_notes
from collector.options import Options
from collector.ring.clock import Clock
from collector.ring.words import WordLog
from collector.session.place import Launch, claim_place
from collector.sidecar.process import recover_run
from tests.fuzz.asking import LISTS, Bystander, Server, list_addresses
from tests.fuzz.files import choose_form, replaced
from tests.fuzz.frame import Case
from tests.fuzz.mutations import spoil_bytes, spoil_json
from tests.support.panorama import PANORAMA
from tests.support.runs import EPOCH_UNIX_NS, RunPlan, build_run

_RUNS = ("rich", "imported", "ranks")
_ASKED = 2


class Manifests:
    """Shows, opens, recovers and records over a run with another manifest."""

    name = "manifests"

    def __init__(self, folder: Path) -> None:
        self.base, self._aside = folder / "runs", folder / "aside"
        for name in _RUNS:
            PANORAMA[name](self.base / name)
        build_run(self.base / "other", RunPlan(steps=14))
        build_killed(self._aside / "killed")
        self._files = {name: self._list_files(name) for name in _RUNS}
        self._server = Server(self.base)
        self._bystander = Bystander(self._server, self.base, "other")

    def _list_files(self, run: str) -> dict[str, bytes]:
        path = self.base / run
        files = [layout.run_file(path), layout.rank_file(path, 0)]
        return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}

    def make(self, chance: random.Random) -> Case:
        if chance.random() < 0.1:
            return self._make_notes(chance)
        run = chance.choice(_RUNS)
        name = chance.choice(list(self._files[run]))
        content = self._files[run][name]
        addresses = chance.sample(list_addresses(run, "other"), _ASKED)
        place = json.dumps([run, name, choose_form(chance), chance.choice(LISTS).format(run=run), *addresses])
        return Case(place, spoil_json(chance, content) if chance.random() < 0.97 else spoil_bytes(chance, content))

    def _make_notes(self, chance: random.Random) -> Case:
        path = layout.events_path(layout.rank_path(self._aside / "killed", 0)) / "notes.json"
        how = chance.choice(("recover", "claim", "read"))
        return Case(json.dumps(["killed", how, choose_form(chance)]), spoil_json(chance, path.read_bytes()))

    def check(self, case: Case) -> bool:
        run, name, form, *addresses = json.loads(case.place)
        if run == "killed":
            return self._check_notes(name, form, case.content)
        path = self.base / run
        with replaced(path / name, form, case.content):
            answers = [self._server.ask(address) for address in addresses]
            if len(case.content) % 10 == 0:
                self._open(path)
        return all(answer.status_code != 409 for answer in answers)

    def _open(self, path: Path) -> None:
        """Do what scripts and `recover` do, the latter with a copy."""
        copy = self._aside / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(
            path / layout.PROFILER_FOLDER, copy / layout.PROFILER_FOLDER, symlinks=True, ignore=_ignore_pipes
        )
        try:
            open_run(path).print_summary()
            recover_run(copy)
        except (StepscopeError, OSError):
            return

    def _check_notes(self, how: str, form: str, content: bytes) -> bool:
        copy = self._aside / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self._aside / "killed", copy)
        folder = layout.rank_path(copy, 0)
        try:
            with replaced(layout.events_path(folder) / "notes.json", form, content):
                if how == "recover":
                    return recover_run(copy)[0] == "recovered"
                if how == "claim":
                    claim_place(copy, Launch(0, 1, "", None, None, {}))
                else:
                    read_notes(folder)
        except FileNotFoundError as error:
            if "copy" in str(error):  # what was recorded is moved aside by now
                return True
            raise
        except (OutputError, OSError):
            return False
        except ValueError as error:
            if how != "read" or (type(error) is not ValueError and not isinstance(error, ValueError)):
                raise
            return False
        return True

    def verify(self) -> None:
        self._bystander.verify()

    def close(self) -> None:
        self._server.close()


def build_killed(path: Path) -> None:
    """A recording whose process was killed before its first step."""
    build_run(path, RunPlan(steps=0, operators=False))
    folder = layout.rank_path(path, 0)
    layout.rank_file(path, 0).unlink()
    layout.events_path(folder).mkdir()
    clock = Clock(EPOCH_UNIX_NS, 1, EPOCH_UNIX_NS)
    write_notes(
        Notes(0, 2**22 - 1, None, "here", EPOCH_UNIX_NS, EPOCH_UNIX_NS, 1, EPOCH_UNIX_NS, options=Options().as_dict()),
        folder,
    )
    WordLog(layout.events_path(folder) / WORDS_FILE, 1 << 10).close()
    del clock


def _ignore_pipes(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if Path(folder, name).is_fifo() or Path(folder, name).is_symlink()}


KIND = Manifests
