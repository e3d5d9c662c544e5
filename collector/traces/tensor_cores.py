"""Whether a kernel multiplies on tensor cores (NVIDIA) or matrix cores (AMD), from its name.

A trace does not say it, so a kernel whose name is silent (most of what Triton
compiles) counts as one that does not.
"""

from __future__ import annotations

import re

_MULTIPLIES = re.compile(
    # cuBLAS, cuDNN and CUTLASS: h884, s1688, s16816, s161616, tensorop, wmma, xmma, hmma, imma; sm90 and up: gmma,
    # nvjet, tcgen05, utcmma; DeepGEMM and Marlin.
    r"884|1688|16816|161616|tensorop(?![A-Z])|[wxhidg]mma|nvjet|tcgen05|utcmma|umma|sm(90|100|103|120)_.*gemm"
    r"|deep_gemm|marlin|_tc_"
    # Flash attention, of CUDA, of Composable Kernel, and of AOTriton.
    r"|flash_(fwd|bwd)|fmha|^attn_(fwd|bwd)|^bwd_kernel_d[kq]|fused_attention"
    # AMD: MFMA in Tensile's MI16x16 names, XDL operations, MIOpen's igemm (gtcx).
    r"|_MI\d+x\d+x\d+|mfma|xdl|gtcx"
)
_WITHOUT = re.compile(r"simt|(?<!t)f32f32_f32f32_f32")
"""Of names that fit: FP32 in full is computed without tensor cores on NVIDIA."""


def uses_tensor_cores(name: str) -> bool:
    return bool(_MULTIPLIES.search(name)) and not _WITHOUT.search(name)
