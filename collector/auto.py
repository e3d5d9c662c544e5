"""`import stepscope.auto`: record this process if PROFILER_OUTPUT_PATH is set; otherwise do nothing.

The import is meant for a script that plain `python` starts. The environment then decides, as it does under
`stepscope run`.
"""

from __future__ import annotations

from collector.launch.activation import activate_from_environment

activate_from_environment()
