"""The start of the command `stepscope`. If another package hides our `collector`, an error names it.

The command cannot start in `collector`, because another distribution may own that name.
"""

from __future__ import annotations

import importlib.util
import sys

_CANNOT = 2
_NEEDED = ("duckdb", "fastapi", "jinja2", "multipart", "python_multipart", "rich", "starlette", "typer", "uvicorn")
"""The modules that the extra `server` of pyproject.toml installs."""


def run_stepscope() -> int:
    """Run the command `stepscope VERB`, and return its exit code. `stepscope serve DIR` is `--summary-base-dir DIR`."""
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    if verb in ("run", "serve"):
        del sys.argv[1]
    if verb == "run":
        return run_profiler()
    if verb == "serve" and sys.argv[1:] and not sys.argv[1].startswith("-"):
        sys.argv.insert(1, "--summary-base-dir")
    if problem := find_shadow():
        return _refuse(problem)
    if sys.argv[1:] == ["--version"]:  # needs none of the libraries, whose import takes most of the time
        from collector.version import __version__

        print(f"stepscope {__version__}")
        return 0
    try:
        from profiler_server import cli

        cli.main(is_serve=verb == "serve")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        return _refuse(f"{missing} is not installed; install the server with: pip install 'stepscope[server]'")
    return 0


run_server = run_stepscope
"""The command by its older name, `profiler-server`."""


def run_profiler() -> int:
    """Run the command `stepscope run`, by its older name `profiler-run`, and return its exit code."""
    if problem := find_shadow():
        return _refuse(problem)
    from collector.launch import main

    return main()


def find_shadow() -> str:
    """Return an error text if another package hides our `collector`, or if ours cannot be imported; "" for neither."""
    try:
        import collector
    except ImportError as error:
        return f"the package collector cannot be imported ({error}); install stepscope again"
    if "Profiler" in getattr(collector, "__all__", ()) and _has_module("collector.launch.command"):
        return ""
    place = getattr(collector, "__file__", None) or "".join([*getattr(collector, "__path__", ())][:1])
    return (
        f"{place} is another package named collector and hides that of stepscope; uninstall it, "
        "or use an environment of its own for stepscope"
    )


def _has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def _refuse(problem: str) -> int:
    print(f"stepscope: {problem}", file=sys.stderr)
    return _CANNOT
