"""Commands of `stepscope` in the process of a test."""

from __future__ import annotations

import sys

import pytest

from profiler_server import cli


def run_command(*words: object) -> int:
    """Run a command and return its exit code; what it prints goes where the test's own output goes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["stepscope", *map(str, words)])
        try:
            cli.main()
        except SystemExit as ended:
            return int(ended.code or 0)
    return 0
