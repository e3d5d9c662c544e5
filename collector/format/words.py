"""Names that tables hold and that code asks for: each stands here once."""

from __future__ import annotations

STAGES = ("read", "transform", "collate", "send", "pin", "h2d", "step")
"""The stages of a DataLoader in the order in which a batch goes through them; the codes of the log of stages."""
STACK_STAGES = ("read", "transform", "collate", "fetch", "send", "wait")
"""Where a batch is made, as stacks tell it; `fetch` is read or transform where the samples were not timed one by one."""
STAGE_KINDS = ("work", "input_wait", "output_wait", "setup", "cleanup")
WORKER_QUEUE, PIN_QUEUE = QUEUES = ("worker_queue", "pin_queue")
"""The queues of a DataLoader in the order in which a batch passes them."""
DEVICE_CATEGORIES = ("kernel", "memcpy", "memset")
SLICE_CATEGORIES = (
    *("operator", *DEVICE_CATEGORIES, "runtime", "communication", "annotation", "python", "module"),
    *("step", "phase", "stage", "wait", "overhead", "other"),
)
NO_OPERATOR = "(no operator"
"""How the names begin under which the table of operators holds device work that no operator launched."""
