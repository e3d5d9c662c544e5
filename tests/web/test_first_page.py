"""What a new server imports before it shows the run list, and which routes it has then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from collector.traces.importing import import_trace
from tests.support.runs import RunPlan, build_run
from tests.support.tables import make_inference
from tests.support.traces import training_steps, write_trace

_SHOW_LIST = """
import sys
from pathlib import Path
from starlette.testclient import TestClient
from profiler_server.settings import Settings
from profiler_server.web.app import create_app

app = create_app(Settings(base_dir=Path(sys.argv[1])))
app.state.services.store.background.start = lambda key, work: None
with TestClient(app, base_url="http://127.0.0.1") as client:
    page = client.get("/")
    assert page.status_code == 200 and all(
        f"/runs/{run}/" in page.text for run in ("healthy", "inference", "without-loader")
    )
    slow = ("pandas", "duckdb", "scipy", "profiler_server.diagnosis.judging", "profiler_server.web.routes.measured")
    print([name for name in slow if name in sys.modules])
    print(client.get("/api/v1/runs/healthy/steps").status_code, client.get("/nowhere").status_code)
    print("/api/v1/runs/{run_id}/timeline/tile" in client.get("/api/v1/openapi.json").text)
"""


def test_the_run_list_comes_before_what_takes_long_to_import(tmp_path: Path) -> None:
    build_run(tmp_path / "healthy", RunPlan(steps=14))
    make_inference(build_run(tmp_path / "inference", RunPlan(steps=14)))
    import_trace(write_trace(tmp_path / "t.json", training_steps()), tmp_path / "without-loader")
    done = subprocess.run([sys.executable, "-c", _SHOW_LIST, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "200 404", "True"]
