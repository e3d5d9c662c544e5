"""Traces of steps on a device, written by a small model of host and device: what is late there is late for a reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from collector.format.run import Run
from collector.traces.importing import import_trace
from tests.support.traces import Event, annotation, call, copy, kernel, operator, step, write_trace

STEPS, PARTS = 25, 4
"""Steps of a trace, and how often each does what it is made of: a gain of less than half a millisecond is not said."""
LAUNCH_US, START_US, GAP_US = 6.0, 4.0, 1.0
QUEUE = 600
"""Launches that the device takes before it lets the host wait."""


class Machine:
    """A host that runs operators one after the other, a stream that runs what they launch, and one for collectives."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now_us = 100.0
        self.free_us = 0.0
        self.sent_us = 0.0
        self._correlation = 0
        self._ends_us: list[float] = []

    def work(self, us: float) -> None:
        """Spend host time outside of operators."""
        self.now_us += us

    def run(
        self, name: str, kernel_us: float = 20.0, host_us: float = 10.0, kernels: str = "gemm_sm90", **args: Any
    ) -> None:
        """Run an operator that launches a kernel; none of length 0."""
        begin = self.now_us
        self.now_us += host_us
        if kernel_us:
            at, number = self._launch("cudaLaunchKernel", kernel_us)
            self.events.append(kernel(kernels, at, kernel_us, number))
        self.now_us += 2.0
        self.events.append(operator(name, begin, self.now_us - begin, **args))

    def wait(self, name: str = "", call_name: str = "cudaStreamSynchronize") -> None:
        """Wait for the device, inside of an operator if one is named."""
        begin = self.now_us
        self.now_us += 3.0
        at, self.now_us = self.now_us, max(self.now_us + 2.0, self.free_us + 2.0)
        self._correlation += 1
        self.events.append(call(at, self.now_us - at, self._correlation, call_name))
        if name:
            self.now_us += 2.0
            self.events.append(operator(name, begin, self.now_us - begin))

    def copy(
        self,
        name: str,
        us: float,
        size_bytes: int,
        *,
        blocking: bool = False,
        kind: str = "HtoD (Pageable -> Device)",
        **args: Any,
    ) -> None:
        """Copy inside of an operator."""
        begin = self.now_us
        self.now_us += 5.0
        called = self.now_us
        self.now_us += LAUNCH_US
        at = max(self.free_us + GAP_US, called + START_US)
        self.free_us = at + us
        self._correlation += 1
        if blocking:
            self.now_us = max(self.now_us, self.free_us + 3.0)
        self.events.append(call(called, self.now_us - called, self._correlation, "cudaMemcpyAsync"))
        self.events.append({**copy(at, us, self._correlation, bytes=size_bytes), "name": f"Memcpy {kind}"})
        self.now_us += 2.0
        self.events.append(operator(name, begin, self.now_us - begin, **args))

    def reduce(self, us: float, size_bytes: int, in_hook: bool = True) -> None:
        """Start a reduction behind what was launched so far, from the hook of a gradient or on its own."""
        begin = self.now_us
        self.now_us += 2.0
        self._order("cudaEventRecord", "cudaStreamWaitEvent")
        called = self.now_us
        self.now_us += LAUNCH_US
        self._correlation += 1
        at = max(self.sent_us + GAP_US, self.free_us + GAP_US, called + START_US)
        self.sent_us = at + us
        message = {"Collective name": "allreduce", "In msg nelems": size_bytes // 4, "dtype": "Float", "Group size": 2}
        self.events.append(call(called, LAUNCH_US, self._correlation, "cudaLaunchKernelExC"))
        self.events.append(kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at, us, self._correlation, 20, **message))
        self.events.append(annotation("nccl:all_reduce", called - 0.5, LAUNCH_US + 1.0))
        self.now_us += 1.0
        self.events.append(operator("c10d::allreduce_", begin + 1.0, self.now_us - begin - 1.0))
        self.now_us += 1.0
        hook = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
        if in_hook:
            self.events.append(operator(hook, begin, self.now_us - begin))

    def join(self) -> None:
        """Let what is launched from here on wait for the reductions."""
        self._order("cudaEventRecord", "cudaStreamWaitEvent")
        self.free_us = max(self.free_us, self.sent_us)

    def _order(self, *names: str) -> None:
        for name in names:
            self._correlation += 1
            self.events.append(call(self.now_us, 1.0, self._correlation, name))
            self.now_us += 1.5

    def call_driver(self, name: str, us: float, within: str = "") -> None:
        """Call the driver, inside of an operator if one is named."""
        begin = self.now_us
        self._correlation += 1
        self.events.append(call(begin + 1.0, us, self._correlation, name))
        self.now_us += us + 2.0
        if within:
            self.events.append(operator(within, begin, self.now_us - begin))

    def mark(self, name: str, body: Callable[[], None]) -> None:
        """Do something inside of an annotation."""
        begin = self.now_us
        body()
        self.events.append(annotation(name, begin, self.now_us - begin))

    def _launch(self, name: str, us: float) -> tuple[float, int]:
        called = self.now_us
        if len(self._ends_us) >= QUEUE:
            self.now_us = max(self.now_us, self._ends_us[-QUEUE])
        at = max(self.free_us + GAP_US, self.now_us + START_US)
        self.now_us += LAUNCH_US
        self._correlation += 1
        self.events.append(call(called, self.now_us - called, self._correlation, name))
        self.free_us = at + us
        self._ends_us.append(self.free_us)
        return at, self._correlation


Step = Callable[[Machine], None]


def build_window(path: Path, body: Step, steps: int = STEPS, capability: int = 9, reads_loss: bool = True) -> Run:
    """Import a trace of steps that all do the same. Each ends with reading its loss, unless told otherwise."""
    machine = Machine()
    for number in range(1, steps + 1):
        begin = machine.now_us
        machine.work(5.0)
        for _ in range(PARTS):
            body(machine)
        if reads_loss:
            machine.wait("aten::item")
        machine.work(5.0)
        machine.events.append(step(number, begin, machine.now_us - begin))
    device = {"id": 0, "name": "NVIDIA", "numSms": 108, "computeMajor": capability, "computeMinor": 0}
    path.mkdir(parents=True, exist_ok=True)
    trace = write_trace(path / "t.json", machine.events, {"deviceProperties": [device]})
    return import_trace(trace, path / "run")


def compute(machine: Machine, layers: int = 20, kernel_us: float = 100.0) -> None:
    """Run layers that keep the device busy while the host is ahead."""
    for _ in range(layers):
        machine.run("aten::mm", kernel_us)
