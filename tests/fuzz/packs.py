"""Packed runs as nobody packs them: bytes, lists, names and sizes that lie."""

from __future__ import annotations

import io
import json
import random
import shutil
import zipfile
from pathlib import Path

from collector.format.packed import unpack, write_pack
from collector.format.run import open_run
from collector.format.schema.errors import NewerSchemaError, TableBrokenError
from collector.format.schema.layout import run_file
from profiler_server.report import build_report
from tests.fuzz.files import take_stock
from tests.fuzz.frame import Case, HarmError
from tests.fuzz.mutations import spoil_bytes, spoil_json
from tests.support.runs import RunPlan, build_run

_NAMES = (
    "../../evil", "/tmp/evil", "profiler/../../../evil", "profiler/rank_0/../../../../evil.parquet", "profiler/rank_1/rank.json",
    "profiler/rank_0/rank.json", "profiler/rank_0/steps/000001.parquet", "profiler/rank_0/steps.parquet/", "profiler/run.json\x00x",
    "profiler\\run.json", "earlier/20260101-000000/../../../evil", "earlier/20260101-000001/profiler/rank_0/rank.json", "earlier/x",
    "d.stepscope", "profiler/rank_0/" + "n" * 300 + ".parquet", "profiler/rank_0/é.parquet", "profiler", "\udcff",
)  # fmt: skip
_LIST, _END = b"PK\x01\x02", b"PK\x05\x06"


class Packs:
    """Unpacks packs, and reports the run in one that is accepted."""

    name = "packs"

    def __init__(self, folder: Path) -> None:
        self.folder, self.target, self.pack = folder, folder / "target", folder / "mutated.stepscope"
        run = build_run(folder / "origin/digits", RunPlan(steps=4))
        first = build_run(run / "earlier/20260101-000000", RunPlan(steps=2))
        for number, place in enumerate((first, run), 1):
            file = run_file(place)
            file.write_text(json.dumps(json.loads(file.read_text()) | {"job_id": "job", "attempt": number}))
        write_pack(open_run(run), folder / "origin.stepscope")
        self.packed = (folder / "origin.stepscope").read_bytes()
        self._stock = self._look()

    def _look(self) -> dict[str, tuple[int, int]]:
        stock = take_stock(self.folder, self.target)
        return {path: state for path, state in stock.items() if path != str(self.pack)}

    def make(self, chance: random.Random) -> Case:
        how = chance.choice(("bytes", "list", "end", "contents", "contents"))
        start = {"bytes": 0, "list": self.packed.find(_LIST), "end": self.packed.rfind(_END)}.get(how)
        if start is not None:
            return Case(how, self.packed[:start] + spoil_bytes(chance, self.packed[start:]))
        with zipfile.ZipFile(io.BytesIO(self.packed)) as pack:
            contents = [(name, pack.read(name)) for name in pack.namelist()]
        manifests = [at for at, (name, _) in enumerate(contents) if name.endswith(".json")]
        at = chance.choice((*manifests * 4, *range(len(contents))))
        name, content = contents[at]
        spoil = spoil_json if name.endswith(".json") and chance.random() < 0.7 else spoil_bytes
        contents[at] = (chance.choice(_NAMES), content) if chance.random() < 0.3 else (name, spoil(chance, content))
        sink = io.BytesIO()
        with zipfile.ZipFile(sink, "w", chance.choice((zipfile.ZIP_STORED,) * 5 + (zipfile.ZIP_DEFLATED,))) as pack:
            for name, content in contents:
                if name not in pack.NameToInfo:
                    pack.writestr(name.encode("utf-8", "replace").decode(), content)
        return Case(how, sink.getvalue())

    def check(self, case: Case) -> bool:
        self.pack.write_bytes(case.content)
        shutil.rmtree(self.target, ignore_errors=True)
        self.target.mkdir()
        try:
            unpack(self.pack, self.target)
        except (TableBrokenError, NewerSchemaError) as error:
            if "\n" in str(error) or str(self.pack) not in str(error):
                raise HarmError(f"the refusal is no line that names the file: {error}") from None
            return False
        if sum(file.stat().st_size for file in self.target.rglob("*") if file.is_file()) > len(case.content):
            raise HarmError("a pack unpacks to more than its size")
        json.dumps(build_report(open_run(self.target)))
        return True

    def verify(self) -> None:
        if self._look() != self._stock:
            raise HarmError("something beside the target is not as it was")

    def close(self) -> None: ...


KIND = Packs
