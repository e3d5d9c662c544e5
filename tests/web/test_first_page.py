"""What a new server imports before it shows the run list, and which routes it has then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
    assert page.status_code == 200 and "/runs/healthy/" in page.text
    slow = ("pandas", "duckdb", "scipy", "profiler_server.diagnosis.judging", "profiler_server.web.routes.measured")
    print([name for name in slow if name in sys.modules])
    print(client.get("/api/v1/runs/healthy/steps").status_code, client.get("/nowhere").status_code)
    print("/api/v1/runs/{run_id}/timeline/tile" in client.get("/api/v1/openapi.json").text)
"""


def test_the_run_list_comes_before_what_takes_long_to_import(web_base: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _SHOW_LIST, str(web_base)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "200 404", "True"]
