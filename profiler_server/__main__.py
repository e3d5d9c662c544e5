"""The start of `profiler-server`. If a library that the server needs is missing, it says what to install."""

from __future__ import annotations

import sys

_NEEDED = ("duckdb", "fastapi", "jinja2", "multipart", "python_multipart", "rich", "starlette", "typer", "uvicorn")
"""The modules that the extra `server` of pyproject.toml installs."""


def main(program: str = "profiler-server") -> None:
    """Run the command line of that program. If libraries are missing, print what to install and exit with code 2."""
    try:
        from profiler_server import cli

        cli.main(program)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        print(
            f"{program}: {missing} is not installed; install the server with: pip install 'stepscope[server]'",
            file=sys.stderr,
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
