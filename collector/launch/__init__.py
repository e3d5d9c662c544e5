"""`stepscope run`: record a training script without changing it, or benchmark it in several processes.

Must not import torch: the script decides when to load torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `stepscope run` with these arguments, by default those of this process, and return its exit code. The script's
    own SystemExit and exceptions pass through.
    """
    from collector.launch.command import run_command

    return run_command(sys.argv[1:] if arguments is None else list(arguments))
