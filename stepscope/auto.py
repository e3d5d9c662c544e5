"""`import stepscope.auto`: record this process if PROFILER_OUTPUT_PATH is set; otherwise do nothing."""

import collector.auto  # noqa: F401
