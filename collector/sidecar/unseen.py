"""What a run says of what was not seen in it: its input, its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collector.format.schema.manifest import Warn
from collector.sidecar.rows import DATA, GAP, H2D, TAIL

INPUT_UNSEEN = "input_unseen"
UNSEEN_FRAC = 0.1
"""Where no input is seen, and more than this of the training steps passes outside of every known call, it may be input."""
FIRST_STEPS = 3
"""They may take a thousand times as long as the others, and say nothing of them."""
_INPUT = (
    "No input of the training was seen: no DataLoader, and nothing that the script marked. {share:.0%} of the steps "
    "lie outside of every known call. If that gap is your input, wrap it: for batch in collector.watch(batches)."
)


@dataclass
class Seen:
    """Sums over the training steps: how many, their length; and of those after the first, what was in no known call."""

    steps: int = 0
    train_ns: int = 0
    judged_ns: int = 0
    input_ns: int = 0
    outside_ns: int = 0

    def add(self, steps: int, took_ns: int, phases_ns: Sequence[int]) -> None:
        self.steps += steps
        self.train_ns += took_ns
        self.input_ns += phases_ns[DATA]
        if self.steps <= FIRST_STEPS:
            return
        self.judged_ns += took_ns
        self.outside_ns += phases_ns[GAP] + phases_ns[H2D] + phases_ns[TAIL]

    def list_warnings(self) -> tuple[Warn, ...]:
        share = self.outside_ns / self.judged_ns if self.judged_ns else 0.0
        if self.input_ns or share < UNSEEN_FRAC:
            return ()
        return (Warn(INPUT_UNSEEN, _INPUT.format(share=share)),)
