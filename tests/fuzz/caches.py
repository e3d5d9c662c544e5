"""Files of caches that were cut, changed or replaced: of the timeline, of results, of uploads that wait."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from collector.format.run import RankRun, open_run
from profiler_server.analysis.accounting.categories import list_categories
from profiler_server.analysis.device.device import summarize_device
from profiler_server.derive import derived, records
from profiler_server.derive.store import Store, find_store
from profiler_server.pages.device.panels import measure_devices
from profiler_server.timeline.cache import CACHE_FOLDER, find_timelines
from profiler_server.web.uploads import waiting
from tests.fuzz.asking import Server
from tests.fuzz.files import choose_form, put, remove, replaced
from tests.fuzz.frame import Case, HarmError
from tests.fuzz.mutations import splice, spoil_bytes, spoil_json
from tests.support.panorama import PANORAMA

_TIMELINE = "/api/v1/runs/rich/timeline"
_ASKED = 3
_RESULTS: tuple[Callable[[RankRun], Any], ...] = (list_categories, summarize_device, measure_devices)


class Caches:
    """Asks for what is cached. The answer must be there, and be that of a whole cache or say what is wrong."""

    name = "caches"

    def __init__(self, folder: Path) -> None:
        self.base = folder / "runs"
        PANORAMA["rich"](self.base / "rich")
        self._server = Server(self.base)
        self._rank = open_run(self.base / "rich").rank(0)
        meta = self._server.ask(f"{_TIMELINE}/meta").json()
        asks = (
            f"tile?level={meta['rawLevel']}&number=0",
            f"tile?level={meta['topLevel']}&number=0",
            "search?q=a",
            "slice?id=3",
        )
        more = (f"slice?id={10**6}", "meta", "export?detail=full&packed=json")
        self._asks = [*(f"{_TIMELINE}/{ask}" for ask in (*asks, *more)), "/runs/rich/timeline"]
        self._answers = {ask: self._server.ask(ask).content for ask in self._asks if "export" not in ask}
        self._answers.pop("/runs/rich/timeline")  # it says how long ago the run was
        (self._cache,) = (self._rank.folder / CACHE_FOLDER).iterdir()
        self._files = {path.name: path.read_bytes() for path in sorted(self._cache.iterdir())}
        self._results = self._rank.folder / records.FOLDER
        derived.AT_ONCE_SLICES = -1  # as if the rank were a large one, whose results are cached on the disk
        self._whole = self._read_results()
        self._files |= {f"{records.FOLDER}/{path.name}": path.read_bytes() for path in sorted(self._results.iterdir())}
        self._room = folder / "uploads"
        upload = self._room / ("0" * 16)
        upload.mkdir(parents=True)
        (upload / "t.json").write_text("{}")
        waiting.accept(upload, [upload / "t.json"])

    def make(self, chance: random.Random) -> Case:
        if chance.random() < 0.1:
            names = (
                b'["t.json"]',
                b'["../0000000000000000/t.json", "/etc/passwd"]',
                b'["t.json", "t.json\\u0000", ""]',
            )
            return Case(json.dumps(["upload", choose_form(chance)]), spoil_json(chance, chance.choice(names)))
        name = chance.choice(list(self._files))
        content = self._files[name]
        if name.endswith(".json") and chance.random() < 0.7:
            content = spoil_json(chance, content)
        elif chance.random() < 0.1:
            content = splice(chance, list(self._files.values()))
        else:
            content = spoil_bytes(chance, content)
        return Case(json.dumps([name, choose_form(chance), *chance.sample(self._asks, _ASKED)]), content)

    def check(self, case: Case) -> bool:
        name, form, *asks = json.loads(case.place)
        if name == "upload":
            return self._check_upload(form, case.content)
        find_timelines()._open.clear()
        find_store()._entries.clear()
        path = self._locate(name)
        try:
            path.unlink()
            timer = put(path, form, case.content)
            if path.parent == self._results and self._read_results() != self._whole:
                raise HarmError("a damaged result is taken for a whole one")
            for ask in asks:
                answer = self._server.ask(ask)
                if answer.status_code == 409 and path.is_symlink():
                    continue  # a run with a link inside is not shown
                if answer.content != self._answers.get(ask, b"") and ask in self._answers:
                    raise HarmError(f"{ask} shows what is not there: {answer.status_code} {answer.content[:200]!r}")
            if timer is not None:
                timer.join()
            return path.is_file() and path.read_bytes() == case.content
        finally:
            self._restore()

    def _locate(self, name: str) -> Path:
        return (self._rank.folder if name.startswith(records.FOLDER) else self._cache) / name

    def _read_results(self) -> list[bytes]:
        results = []
        for read in _RESULTS:
            with Store().held():
                results.append(msgspec.msgpack.encode(read(self._rank), enc_hook=records._encode_array))
        return results

    def _restore(self) -> None:
        """Put the whole cache back: a damaged one was perhaps built again."""
        for folder in (self._rank.folder / CACHE_FOLDER, self._results):
            remove(folder)
        for folder in (self._cache, self._results):
            folder.mkdir(parents=True)
        for name, content in self._files.items():
            self._locate(name).write_bytes(content)

    def _check_upload(self, form: str, content: bytes) -> bool:
        with replaced(self._room / ("0" * 16) / "accepted.json", form, content):
            found = waiting.list_accepted(self._room)
        for folder, files in found:
            if any(path.resolve().parent != folder.resolve() for path in files):
                raise HarmError(f"a file outside of its upload would be imported: {files}")
        return bool(found)

    def verify(self) -> None:
        find_timelines()._open.clear()
        for ask in self._asks:
            self._server.ask(ask)

    def close(self) -> None:
        self._server.close()


KIND = Caches
