"""For each rule on a replayed window: steps with its cause, and the same steps without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.windows import Machine, Step, compute

POINTWISE = "void at::native::vectorized_elementwise_kernel<4>"
HALF: dict[str, Any] = {"Input type": ["c10::BFloat16", "c10::BFloat16"]}
BYTES: dict[str, Any] = {"Input type": ["unsigned char"]}
FLOATS: dict[str, Any] = {"Input type": ["float"]}


@dataclass(frozen=True)
class WindowCase:
    """`mended` does the same work without the cause; None where how fast that is cannot be known beforehand."""

    planted: Step
    mended: Step | None


def wait_each_layer(machine: Machine) -> None:
    for _ in range(10):
        machine.run("aten::mm", 300.0)
        machine.wait("aten::item")
        machine.work(150.0)


def never_wait(machine: Machine) -> None:
    for _ in range(10):
        machine.run("aten::mm", 300.0)
        machine.work(160.0)


def synchronize(machine: Machine) -> None:
    for _ in range(5):
        compute(machine, 3, 150.0)
        machine.wait(call_name="cudaDeviceSynchronize")
        machine.work(200.0)


def do_not_synchronize(machine: Machine) -> None:
    for _ in range(5):
        compute(machine, 3, 150.0)
        machine.work(200.0)


def copy_pieces(machine: Machine) -> None:
    for _ in range(40):
        machine.copy("aten::to", 2.0, 512)
    compute(machine, 5)


def copy_once(machine: Machine) -> None:
    machine.copy("aten::to", 6.0, 40 * 512)
    compute(machine, 5)


def build_on_host(machine: Machine) -> None:
    for _ in range(6):
        machine.run("aten::arange", 0.0, 30.0)
        machine.copy("aten::to", 3.0, 4096, blocking=True)
        machine.work(100.0)
        machine.run("aten::mm", 150.0, 5.0)
        machine.work(50.0)


def build_on_device(machine: Machine) -> None:
    for _ in range(6):
        machine.run("aten::arange", 3.0, 30.0)
        machine.work(100.0)
        machine.run("aten::mm", 150.0, 5.0)
        machine.work(50.0)


def bring_all_home(machine: Machine) -> None:
    compute(machine, 10)
    machine.copy("aten::to", 800.0, 8 << 20, blocking=True, kind="DtoH (Device -> Pageable)")
    machine.work(300.0)


def bring_little_home(machine: Machine) -> None:
    compute(machine, 10)
    machine.work(300.0)


def cast_on_host(machine: Machine) -> None:
    machine.run("aten::to", 0.0, 900.0, **BYTES)
    machine.copy("aten::to", 400.0, 16 << 20, blocking=True, **FLOATS)
    compute(machine, 10)


def cast_on_device(machine: Machine) -> None:
    machine.copy("aten::to", 100.0, 4 << 20, blocking=True, **BYTES)
    compute(machine, 10)


def average_one_by_one(machine: Machine) -> None:
    compute(machine, 4)
    for _ in range(150):
        machine.run("aten::lerp_", 2.0, 8.0, POINTWISE)


def average_at_once(machine: Machine) -> None:
    compute(machine, 4)
    machine.run("aten::_foreach_lerp_", 60.0, 150.0, "multi_tensor_apply")


def multiply(machine: Machine, last: int) -> None:
    for _ in range(10):
        sizes: dict[str, Any] = {"Input Dims": [[512, 1024], [1024, last]], **HALF}
        machine.run("aten::mm", 300.0, **sizes)


def convolve(machine: Machine, turned: bool) -> None:
    for _ in range(8):
        if turned:
            machine.run("aten::cudnn_convolution", 40.0, 5.0, "void cudnn::ops::nchwToNhwcKernel<float>")
        machine.run("aten::cudnn_convolution", 100.0, 5.0, "sm80_xmma_fprop_implicit_gemm_tf32f32_nhwc")
        if turned:
            machine.run("aten::cudnn_convolution", 40.0, 5.0, "void cudnn::ops::nhwcToNchwKernel<float>")


def attend(machine: Machine, keys: int = 1024) -> None:
    scores: dict[str, Any] = {"Input Dims": [[8, 16, 1024, keys], [], []]}
    for _ in range(6):
        machine.run("aten::bmm", 60.0, 5.0)
        machine.run("aten::mul", 60.0, 5.0, POINTWISE)
        machine.run("aten::softmax", 90.0, 5.0, "softmax_warp_forward", **scores)
        machine.run("aten::bmm", 60.0, 5.0)


def attend_fused(machine: Machine) -> None:
    for _ in range(6):
        machine.run("aten::scaled_dot_product_attention", 150.0, 10.0, "flash_fwd_kernel")


def chain_pointwise(machine: Machine) -> None:
    for _ in range(8):
        machine.run("aten::mm", 60.0, 5.0)
        for name in ("aten::mul", "aten::add", "aten::sigmoid", "aten::mul"):
            machine.run(name, 40.0, 5.0, POINTWISE)


def chain_fused(machine: Machine) -> None:
    for _ in range(8):
        machine.run("aten::mm", 60.0, 5.0)
        machine.run("aten::fused", 60.0, 10.0, "triton_poi_fused_mul_add")


def allocate(machine: Machine) -> None:
    compute(machine, 5)
    for _ in range(3):
        machine.call_driver("cudaFree", 200.0, "aten::empty")
        machine.call_driver("cudaMalloc", 200.0, "aten::empty")


def allocate_nothing(machine: Machine) -> None:
    compute(machine, 5)


def empty_cache(machine: Machine) -> None:
    compute(machine, 5)
    for _ in range(3):
        machine.call_driver("cudaFree", 300.0)


def wait_at_the_end(machine: Machine) -> None:
    compute(machine, 40)
    machine.wait("aten::item")


WINDOW_CASES: Mapping[str, WindowCase] = {
    "sync_points": WindowCase(wait_each_layer, never_wait),
    "explicit_synchronize": WindowCase(synchronize, do_not_synchronize),
    "small_copies": WindowCase(copy_pieces, copy_once),
    "built_on_cpu": WindowCase(build_on_host, build_on_device),
    "large_d2h": WindowCase(bring_all_home, bring_little_home),
    "cast_before_copy": WindowCase(cast_on_host, cast_on_device),
    "per_parameter_loops": WindowCase(average_one_by_one, average_at_once),
    "misaligned_shapes": WindowCase(lambda machine: multiply(machine, 50_257), None),
    "channels_last": WindowCase(lambda machine: convolve(machine, True), lambda machine: convolve(machine, False)),
    "sdpa_unused": WindowCase(attend, None),
    "unfused_pointwise": WindowCase(chain_pointwise, None),
    "alloc_retries": WindowCase(allocate, allocate_nothing),
    "empty_cache_in_loop": WindowCase(empty_cache, allocate_nothing),
}

HEALTHY_WINDOWS: Mapping[str, Step] = {
    "one wait at the end of a long step": wait_at_the_end,
    "aligned products": lambda machine: multiply(machine, 50_304),
    "images in one layout": lambda machine: convolve(machine, False),
    "fused attention": attend_fused,
    "softmax over few classes": lambda machine: attend(machine, 10),
    "joined by a compiler": chain_fused,
    "busy device": compute,
}


OF_WINDOWS = (
    *("launch_thread_starved", "memory_unused", "needless_checkpointing", "needless_grad"),
    "small_batch",
)
"""Rules that need a window and something beside it, and claim no step time: `test_window_notes`."""
