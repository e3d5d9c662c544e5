"""The example of the document on memory that runs out is run as it stands, and gives what the document shows."""

from __future__ import annotations

import re
from pathlib import Path

from collector.format.run import open_run
from profiler_server.report.brief import write_brief
from tests.unit.launch.programs import ROOT, run_launcher, write_script

_OF_THE_MACHINE = re.compile(r"held [\d.,]+ \w+ of [\d.,]+ \w+")


def test_a_run_out_of_memory_says_what_the_document_shows(tmp_path: Path) -> None:
    text = (ROOT / "docs/how-to/out-of-memory.md").read_text("utf-8")
    (script,) = re.findall(r"^```python [^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    write_script(tmp_path, script, "full.py")
    done = run_launcher(tmp_path, "-o", "runs/full", "full.py")
    assert done.returncode == 1
    assert "DefaultCPUAllocator" in done.stderr
    said = write_brief(open_run(tmp_path / "runs/full"))[0]
    assert _OF_THE_MACHINE.sub("", said) == _OF_THE_MACHINE.sub("", " ".join(shown.split()))
