"""`import collector.auto`: record this process if PROFILER_OUTPUT_PATH is set, and do nothing at all if it is not.

One line for a script that is started by plain `python`: the environment then decides, as it does below profiler-run.
"""

from __future__ import annotations

from collector.launch.activation import activate_from_environment

activate_from_environment()
