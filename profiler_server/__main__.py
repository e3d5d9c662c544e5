"""The entry of `profiler-server`: the package is there without the libraries that the server needs."""

from __future__ import annotations

import sys

_NEEDED = ("duckdb", "fastapi", "jinja2", "multipart", "python_multipart", "rich", "starlette", "typer", "uvicorn")
"""What the extra `server` of pyproject.toml installs, by the names of its modules."""


def main() -> None:
    """Run the command line, or say what to install with exit code 2."""
    try:
        from profiler_server import cli

        cli.main()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        print(
            f"profiler-server: {missing} is not installed; install the server with: pip install 'stepscope[server]'",
            file=sys.stderr,
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
