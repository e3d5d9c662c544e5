"""The compute settings of torch: devices, threads and switches; and the cost of arithmetic on the processor."""

from __future__ import annotations

import bisect
import itertools
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from collector.context.hooks import stop_calling
from collector.context.signals import SETTLED_STEP, Signal, SignalContext

NODES = Path("/sys/devices/system/node")
READ_AFTER = (1, 20, 200)
"""Numbers of steps after which the settings are read again."""
CHUNK = 1 << 14
"""Size of a chunk in numbers: few enough for PyTorch to compute on the calling thread alone."""
MOST_CHUNKS = 20
"""Most chunks that are copied of parameters, of gradients and of optimizer states: a million numbers in all."""
_REPEATS = 3
_SUBNORMAL_FRAC = 0.001
"""Least share of subnormal numbers that is worth timing."""
ROWS = 256
"""Rows of the matrix that a weight is multiplied with; the batch size of the run is unknown between two steps."""
_MOST_SIDE, _MOST_SHAPES = 2048, 2
_EXPONENT, _MANTISSA = 0x7F800000, 0x007FFFFF


class EnvironmentSignal(Signal):
    """The signal of torch settings that advice refers to.

    A script may change the settings late. So they are read at the start, again after some steps, and at the end. A
    switch that was on at any of these times counts as on.
    """

    name = "environment"

    def install(self, context: SignalContext) -> None:
        self._context = context
        context.notes.devices = list_devices()
        context.notes.facts["numa_nodes"] = count_memory_nodes(NODES)
        self._read()
        context.save_now_and_then(self.name, self._read, READ_AFTER)

    def _read(self) -> None:
        notes, found = self._context.notes, read_settings()
        found |= {name: True for name in _MODES if notes.facts.get(name) is True}
        threads = torch.get_num_threads()
        if notes.torch_threads == threads and all(notes.facts.get(name) == value for name, value in found.items()):
            return
        notes.torch_threads = threads
        notes.facts |= found
        self._context.save_notes()


_MODES = ("deterministic", "anomaly_mode")


def read_settings() -> dict[str, Any]:
    """Return the current settings, by the names of the facts of rank.json."""
    return {
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "deterministic": bool(torch.are_deterministic_algorithms_enabled()),
        "anomaly_mode": bool(torch.is_anomaly_enabled()),
        "flash_sdp": bool(torch.backends.cuda.flash_sdp_enabled()),
    }


def count_memory_nodes(folder: Path) -> int | None:
    """Return the number of memory nodes whose processors this process may use; None if the system does not report it."""
    try:
        own = os.sched_getaffinity(0)
        lists = [(node / "cpulist").read_text(encoding="ascii") for node in folder.glob("node[0-9]*")]
        return sum(bool(own & _read_processors(text)) for text in lists) or None
    except (OSError, ValueError, AttributeError):
        return None


def _read_processors(text: str) -> set[int]:
    ends = [part.partition("-") for part in text.strip().split(",") if part]
    return {number for first, _, last in ends for number in range(int(first), int(last or first) + 1)}


def list_devices() -> list[dict[str, Any]]:
    """Return the fields of `schema.manifest.Device` for each CUDA device."""
    if not torch.cuda.is_available():
        return []
    devices = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices.append(
            {
                "index": index,
                "name": properties.name,
                "kind": "cuda",
                "memory_bytes": properties.total_memory,
                "multiprocessors": properties.multi_processor_count,
                "compute_capability": f"{properties.major}.{properties.minor}",
                "uuid": str(getattr(properties, "uuid", "")),  # what NVML knows the device by
            }
        )
    return devices


class ArithmeticSignal(Signal):
    """The signal of arithmetic on the processor (with the probe): the cost of subnormal numbers, and of products
    without bfloat16.

    The cost is measured once, between two steps, on copies of some of the model's numbers. Flushing subnormals to zero
    is a setting of a thread, so it is tried in a thread that ends at once. The training's arithmetic never changes.
    """

    name = "arithmetic"
    option = "probe"

    def __init__(self) -> None:
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._is_autocast = False

    def install(self, context: SignalContext) -> None:
        self._context = context
        context.optimizer_watchers.append(self._optimizers.add)
        context.module_watchers.append(self._see_module)
        context.boundaries.append(self._on_step)

    def remove(self) -> None:
        stop_calling(self._on_step, self._context.boundaries)
        stop_calling(self._see_module, self._context.module_watchers)

    def _see_module(self, module: Any) -> None:
        self._is_autocast = self._is_autocast or torch.is_autocast_enabled("cpu")

    def _on_step(self, step: int) -> None:
        if step < SETTLED_STEP:
            return
        self.remove()
        with self._context.shielded(self.name), torch.no_grad():
            groups = sort_numbers(self._optimizers)
            found = {name: measure_subnormals(tensors) for name, tensors in groups.items() if tensors}
            if found:
                self._context.add_fact("subnormals", found)
            products = measure_products(groups["parameters"])
            if products is not None:
                self._context.add_fact("bfloat16", {**products, "autocast": self._is_autocast})
        self._optimizers.clear()


def sort_numbers(optimizers: Iterable[Any]) -> dict[str, list[torch.Tensor]]:
    """Return the optimizers' parameters, gradients and states that are contiguous float32 on the processor."""
    groups: dict[str, list[torch.Tensor]] = {"parameters": [], "gradients": [], "states": []}
    for optimizer in optimizers:
        for parameter in itertools.chain.from_iterable(group["params"] for group in optimizer.param_groups):
            found = (
                ("parameters", parameter),
                ("gradients", parameter.grad),
                *(("states", value) for value in _list_states(optimizer, parameter)),
            )
            for name, value in found:
                if _is_usable(value):
                    groups[name].append(value.detach())
    return groups


def _list_states(optimizer: Any, parameter: Any) -> tuple[Any, ...]:
    state = optimizer.state.get(parameter)
    return tuple(state.values()) if isinstance(state, Mapping) else ()


def _is_usable(value: Any) -> bool:
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.device.type == "cpu"
        and value.dtype == torch.float32
        and value.layout == torch.strided
        and value.is_contiguous()
        and value.numel() > 0
    )


def measure_subnormals(tensors: list[torch.Tensor]) -> dict[str, int]:
    """Count subnormal numbers in samples of the tensors, and time a multiplication with and without flushing to 0.

    Both times are 0 if less than 0.1 % of the numbers are subnormal, or if the processor cannot flush.
    """
    chunks = list(_copy_chunks(tensors))
    looked, subnormal = sum(chunk.numel() for chunk in chunks), sum(map(count_subnormals, chunks))
    times = (0, 0)
    if subnormal >= _SUBNORMAL_FRAC * looked:
        times = _run_apart(lambda: _time_flushing(chunks)) or times
    return {"count": looked, "subnormal": subnormal, "plain_ns": times[0], "flushed_ns": times[1]}


def count_subnormals(chunk: torch.Tensor) -> int:
    """Count subnormal numbers by their bits. A comparison would find none in a thread that flushes to zero."""
    bits = chunk.view(torch.int32)
    return int(((bits & _EXPONENT == 0) & (bits & _MANTISSA != 0)).sum())


def _copy_chunks(tensors: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield copies of up to MOST_CHUNKS chunks, evenly spread over all tensors."""
    ends = list(itertools.accumulate(-(-tensor.numel() // CHUNK) for tensor in tensors))
    count = min(ends[-1], MOST_CHUNKS)
    for place in (number * ends[-1] // count for number in range(count)):
        at = bisect.bisect_right(ends, place)
        start = (place - (ends[at - 1] if at else 0)) * CHUNK
        yield tensors[at].view(-1)[start : start + CHUNK].clone()


def _run_apart(action: Callable[[], tuple[int, int] | None]) -> tuple[int, int] | None:
    """Return the result of an action that runs in a new thread; None if it raises. Processor settings of the action end
    with the thread.
    """
    found: list[tuple[int, int] | None] = []
    thread = threading.Thread(target=lambda: found.append(action()), name="stepscope-probe", daemon=True)
    thread.start()
    thread.join()
    return found[0] if found else None


def _time_flushing(chunks: list[torch.Tensor]) -> tuple[int, int] | None:
    """Return two times in ns to multiply all chunks: with the training's setting, and with subnormals flushed to zero.
    None if the processor cannot flush."""
    made = torch.empty(CHUNK, dtype=torch.float32, device="cpu")

    def multiply() -> None:
        for chunk in chunks:
            torch.mul(chunk, 0.75, out=made[: chunk.numel()])

    plain_ns = _time_best(multiply)
    return (plain_ns, _time_best(multiply)) if torch.set_flush_denormal(True) else None


def _time_best(action: Callable[[], object]) -> int:
    times = []
    for _ in range(_REPEATS):
        begun = time.perf_counter_ns()
        action()
        times.append(time.perf_counter_ns() - begun)
    return max(min(times), 1)


def find_bfloat16() -> str:
    """Return the name of the processor's instructions for bfloat16 products, "" for none."""
    known = (("AMX", "_is_amx_tile_supported"), ("AVX-512 BF16", "_is_avx512_bf16_supported"))
    return next((name for name, ask in known if getattr(torch.cpu, ask, bool)()), "")


def measure_products(parameters: list[torch.Tensor]) -> dict[str, Any] | None:
    """Time products of the two matrix shapes with most parameters, in float32 and in bfloat16 with conversions.

    None if the model has no matrix, or if the processor has no instructions for bfloat16.
    """
    matrices = [tensor for tensor in parameters if tensor.dim() == 2]
    instructions = find_bfloat16() if matrices else ""
    if not instructions:
        return None
    sizes: Counter[tuple[int, int]] = Counter()
    for tensor in matrices:
        sizes[tuple(tensor.shape)] += tensor.numel()
    shapes = [shape for shape, _ in sizes.most_common(_MOST_SHAPES)]
    with torch.autocast("cpu", enabled=False):
        times = [_time_products(shape) for shape in shapes]
    whole = sum(tensor.numel() for tensor in parameters)
    return {
        "instructions": instructions,
        "rows": ROWS,
        "shapes": [list(shape) for shape in shapes],
        "float32_ns": sum(entry[0] for entry in times),
        "bfloat16_ns": sum(entry[1] for entry in times),
        "linear_frac": sum(sizes.values()) / whole,
    }


def _time_products(shape: tuple[int, ...]) -> tuple[int, int]:
    # Not with the model's own numbers: subnormal ones are slow in float32 for another reason.
    weight = torch.full([min(side, _MOST_SIDE) for side in shape], 0.5, dtype=torch.float32, device="cpu")
    rows = torch.ones((ROWS, weight.shape[1]), dtype=torch.float32, device="cpu")
    multiply = torch.nn.functional.linear
    return (
        _time_best(lambda: multiply(rows, weight)),
        _time_best(lambda: multiply(rows.bfloat16(), weight.bfloat16()).float()),
    )


SIGNAL = (ArithmeticSignal, EnvironmentSignal)
