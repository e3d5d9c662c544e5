"""The start of `stepscope`, `profiler-run` and `profiler-server`. If another package hides our `collector`, an error names it.

The commands cannot start in `collector`, because another distribution may own that name.
"""

from __future__ import annotations

import importlib.util
import sys

_CANNOT = 2


def run_stepscope() -> int:
    """Run the command `stepscope`, and return its exit code: `stepscope run …` is `profiler-run …`, and every other verb,
    also `serve [DIR]` or none, is that of `profiler-server`.
    """
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    if verb in ("run", "serve"):
        del sys.argv[1]
    if verb == "serve" and sys.argv[1:] and not sys.argv[1].startswith("-"):
        sys.argv.insert(1, "--summary-base-dir")
    return run_profiler("stepscope run") if verb == "run" else run_server("stepscope")


def run_profiler(program: str = "profiler-run") -> int:
    """Run the command `profiler-run` under that name, and return its exit code."""
    if problem := find_shadow():
        return _refuse(program, problem)
    from collector.launch import main

    return main(program=program)


def run_server(program: str = "profiler-server") -> int:
    """Run the command `profiler-server` under that name, and return its exit code."""
    if problem := find_shadow():
        return _refuse(program, problem)
    if sys.argv[1:] == ["--version"]:  # needs none of the libraries, whose import takes most of the time
        from collector.version import __version__

        print(f"stepscope {__version__}")
        return 0
    from profiler_server.__main__ import main

    main(program)
    return 0


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


def _refuse(program: str, problem: str) -> int:
    print(f"{program}: {problem}", file=sys.stderr)
    return _CANNOT
