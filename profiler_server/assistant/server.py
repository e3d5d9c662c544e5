"""The MCP server: a tool for each question, read-only, over stdin and stdout. The only file that imports `mcp`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from collector.format.schema.errors import StepscopeError
from collector.version import __version__
from profiler_server.assistant.answers import Answers

INSTRUCTIONS = """Runs of PyTorch trainings as Stepscope recorded them: what bounds them, what to change, what that gains.
Start with list_runs, then overview. Keys say units: _ns is nanoseconds, _frac a fraction of 1. `steps` says which steps
the figures cover. A list has `shown` of `total` entries. A key that is absent is not known: `not_judged`, `warnings` and
`why_…` say why. Report a gain as `gain` words it; where it says that no prediction is made, make none.
sql answers what no other tool does."""
_READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


def build_server(base_dir: Path, redact: bool) -> MCPServer[None]:
    """Return the server of the runs below a folder. With `redact`, it gives no name that is the user's."""
    answers = Answers(base_dir, redact)
    server: MCPServer[None] = MCPServer(
        "stepscope", title="Stepscope", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    for tool, about in _TOOLS.items():
        ask = getattr(answers, tool)
        server.add_tool(
            _guard(ask, answers.hide), name=tool, description=about, annotations=_READ_ONLY, structured_output=False
        )
    return server


_TOOLS = {
    "list_runs": "The runs, newest first, with state, steps, median step. words: all must occur in id, script or host.",
    "overview": "What bounds a run, what to change first and what it gains, what is worth a look, what could not be "
    "judged. rule: the whole of one suggestion instead, with evidence, advice and code.",
    "phases": "Where the mean step goes: its phases, percentiles of steps, slow steps and why, interruptions, start-up.",
    "operators": "Operators and kernels by self time over the detailed windows; device times where there are any.",
    "data_pipeline": "DataLoader: wait for data, loaders, queue depths, time of each stage per batch, functions in them.",
    "ranks": "Which rank the others wait for, by how much and why; slow collectives; how the job ended.",
    "compare": "What changed from run a to run b, step, phases, operators, and whether it is more than noise.",
    "sql": "One SELECT (DuckDB) over the tables of a run. Tables: select distinct table_name from "
    "information_schema.columns where table_name not like '%_rank_%'. Columns: describe steps. The table steps holds "
    "more than training steps: where kind = 'train'. Use limit and offset for more rows.",
}


def _guard(ask: Callable[..., str], hide: Callable[[str], str]) -> Callable[..., str]:
    """Return a tool that answers an error of ours with its message."""

    @functools.wraps(ask)
    def answer(*args: object, **given: object) -> str:
        try:
            return ask(*args, **given)
        except StepscopeError as error:
            raise ToolError(hide(str(error))) from None

    return answer
