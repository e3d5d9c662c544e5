"""What every test starts from."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# A job in the background of a shell starts with SIGINT ignored, and so would every process that a test starts. With a
# handler here, they start as at a terminal.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Frameworks that are tested must not ask their hub for anything.
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
os.environ["PROFILER_VERDICT"] = "0"  # a second for each of the hundreds of trainings

# The gate gives the same answer for the same tree, however slow the machine is.
SLOWNESS = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
settings.register_profile("gate", deadline=None, derandomize=True, suppress_health_check=SLOWNESS)
settings.load_profile("gate")
