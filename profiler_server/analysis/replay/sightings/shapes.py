"""Shapes and layouts that make the device work more than it has to."""

from __future__ import annotations

import re

import numpy as np

from profiler_server.analysis.replay.graph import Changes
from profiler_server.analysis.replay.trial import Change, Trial
from profiler_server.analysis.replay.window import KERNEL
from profiler_server.diagnosis.limits.replay import ALIGNED
from profiler_server.facts.machine import Sighting

_PRODUCT = re.compile(r"^aten::(mm|addmm|bmm|baddbmm)$")
_KERNEL = re.compile(r"gemm|Cijk|cutlass|nvjet", re.IGNORECASE)
_HALF = ("c10::Half", "c10::BFloat16")
_LAYOUT = re.compile(r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|nchw_to_nhwc|nhwc_to_nchw", re.IGNORECASE)
_CONVOLUTION = re.compile(r"conv(?!ert)|winograd|fprop|dgrad|wgrad", re.IGNORECASE)


def find_misaligned_shapes(trial: Trial) -> Sighting | None:
    """Products of 16-bit numbers whose inner or last dimension is no multiple of 8."""
    window = trial.window
    rows = np.flatnonzero(window.match(_PRODUCT))
    sizes = [_read_product(entry) for entry in trial.read_args(rows)]
    odd = np.array([size is not None and any(side % ALIGNED for side in size) for size in sizes], bool)
    owners = rows[odd]
    if not len(owners):
        return None
    launch = window.launch
    around = np.where(launch >= 0, window.parent[launch], -1)
    kernels = np.flatnonzero((window.kind == KERNEL) & np.isin(around, owners) & window.match(_KERNEL))
    nodes = trial.nodes(kernels)
    if not len(nodes):
        return None

    def take(factor: float) -> Change:
        def change(changes: Changes) -> None:
            changes.device[nodes] = factor

        return change

    gain = trial.try_change(take(0.9), take(0.75), take(0.5))
    worst = _name_sizes(trial, owners)
    spent = float(trial.lengths(kernels).sum())
    return trial.sight(len(kernels), spent, worst, gain, share=spent / max(trial.kernels_ns, 1.0))


def _read_product(args: dict[str, object]) -> tuple[int, int] | None:
    """Return the inner and the last dimension of a product of two 16-bit matrices, None for any other."""
    dims, types = args.get("Input Dims"), args.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list):
        return None
    matrices = [
        size
        for size, kind in zip(dims, types, strict=False)
        if kind in _HALF and isinstance(size, list) and len(size) in (2, 3) and all(isinstance(n, int) for n in size)
    ]
    if len(matrices) < 2:
        return None
    one, other = matrices[-2:]
    return (int(one[-1]), int(other[-1])) if one[-1] == other[-2] else None


def _name_sizes(trial: Trial, owners: np.ndarray) -> list[str]:
    counts: dict[str, int] = {}
    for entry in trial.read_args(owners):
        size = _read_product(entry)
        if size is not None:
            name = f"K = {size[0]:,}, N = {size[1]:,}"
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: -counts[name])


def find_layout_copies(trial: Trial) -> Sighting | None:
    """Kernels that only turn images from one layout into the other, around convolutions."""
    window = trial.window
    kernels = np.flatnonzero((window.kind == KERNEL) & window.match(_LAYOUT))
    if not len(kernels):
        return None
    nodes = trial.nodes(kernels)

    def take(factor: float) -> Change:
        def change(changes: Changes) -> None:
            changes.device[nodes] = factor

        return change

    gain = trial.try_change(take(0.4), take(0.1), take(0.0))
    lengths = trial.lengths(kernels)
    share = float(lengths.sum()) / max(trial.kernels_ns, 1.0)
    return trial.sight(len(kernels), float(lengths.sum()), trial.rank_names(kernels, lengths), gain, share=share)


def find_convolutions(trial: Trial) -> Sighting | None:
    """Kernels of convolutions, for settings that are about them."""
    window = trial.window
    kernels = np.flatnonzero((window.kind == KERNEL) & window.match(_CONVOLUTION))
    lengths = trial.lengths(kernels)
    share = float(lengths.sum()) / max(trial.kernels_ns, 1.0)
    if not len(kernels):
        return None
    return trial.sight(len(kernels), float(lengths.sum()), trial.rank_names(kernels, lengths), None, share=share)
