"""Kernel names: short forms that people can distinguish, and whether a kernel computes in full precision.

Most of a C++ kernel's name is common to all kernels of its kind: namespaces, argument types, device layout. Only the
functor and the element type differ. They are in the middle, which is lost when a long name is cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.run import RankRun
from profiler_server.analysis.tables import read_rows
from profiler_server.format import shorten_middle

_LONGEST, _DEEPEST = 20_000, 24
_LOOKS_LIKE_CODE = re.compile(r"\w[<(]")
_LAMBDA = re.compile(r"::\{lambda\(([^(){}]*)\)#(\d+)\}")
_ARGUMENTS = re.compile(r"\([^()]*\)")
_QUALIFIERS = re.compile(r"\s*\bconst\b|[*&]|\s+(?=[>,])")
_TENSILE = re.compile(r"(Cijk_\w+?)(?:_UserArgs)?(_MT\d+x\d+x\d+)_\w*?(_WG\d+_\d+_\d+)?")
"""Name of a rocBLAS product: the problem, the tile, dozens of settings, and the work group."""

_SPELLINGS = {
    "unsigned char": "uint8",
    "unsigned short": "uint16",
    "unsigned int": "uint",
    "unsigned long": "ulong",
    "c10::BFloat16": "bf16",
    "__nv_bfloat16": "bf16",
    "__hip_bfloat16": "bf16",
    "c10::Half": "fp16",
    "__half": "fp16",
    "(anonymous namespace)::": "",
    "::operator()() const": "",
    "::operator()": "",
}
_WRAPPERS = ("gpu_kernel_impl", "gpu_kernel_impl_nocast")
_FAMILY = re.compile(r"\w*(?:elementwise_kernel|multi_tensor_apply_kernel|reduce_kernel)\w*")
"""Generic kernels. Their functor is their actual work, and their numbers are launch settings."""
_LAYOUT = re.compile(r"(?:Trivial)?OffsetCalculator|LoadWith|StoreWith|TensorListMetadata|[aA]rray\b|type\b")
_LITERAL = re.compile(r"\d+\w*|true|false")
_VAGUE = ("kernel", "Kernel", "type", "run", "kentry")


def shorten_kernel(name: str) -> str:
    """Return a kernel's name without namespaces, arguments and layout: its functor and its types.

    A name is returned unchanged if it is no C++ name, or cannot be parsed.
    """
    tensile = _TENSILE.fullmatch(name)
    if tensile:
        return f"{tensile[1]}{tensile[2]}{'…' + tensile[3] if tensile[3] else ''}"
    if len(name) > _LONGEST or not _LOOKS_LIKE_CODE.search(name):
        return name
    text = _drop_arguments(name)
    if "(" in text or ")" in text or not _is_balanced(text):
        return name
    return _describe(text) or name


def name_kernels(names: Sequence[str], limit: int) -> list[str]:
    """Return the short names of different kernels, no two of them alike, of about `limit` letters at most.

    A name that stays the same as another after it is shortened gets the part of the whole name in which they differ.
    """
    short = _tell_apart([shorten_kernel(name) for name in names], names, lambda text, part: f"{text} ({part})")
    cut = [shorten_middle(text, limit) for text in short]
    half = limit // 2
    return _tell_apart(cut, short, lambda text, part: f"{text[: half - 1]}…{part[:half]}")


_LEAD_LENGTH, _PART_LENGTH = 8, 32
"""Letters of the common text that lead to a difference, and the most letters that are shown of both."""


def _tell_apart(shown: list[str], wholes: Sequence[str], join: Callable[[str, str], str]) -> list[str]:
    """Return `shown`, with texts that stand several times joined with what differs in their `wholes`."""
    alike: dict[str, list[int]] = {}
    for at, text in enumerate(shown):
        alike.setdefault(text, []).append(at)
    for rows in alike.values():
        group = {wholes[at] for at in rows}
        if len(group) < 2:
            continue
        same = _count_common(group)
        after = min(_count_common({whole[::-1] for whole in group}), min(map(len, group)) - same)
        for at in rows:
            part = wholes[at][max(0, same - _LEAD_LENGTH) : len(wholes[at]) - after]
            shown[at] = join(shown[at], part[:_PART_LENGTH].strip(" ,<>:"))
    return shown


def _count_common(texts: Collection[str]) -> int:
    """Return how many letters all `texts` begin with alike."""
    first, last = min(texts), max(texts)
    return next((at for at, letter in enumerate(first) if letter != last[at]), len(first))


def _drop_arguments(name: str) -> str:
    """Return a C++ name without function arguments and qualifiers.

    A lambda keeps its argument types, or its number if it has no arguments.
    """
    for spelling, short in _SPELLINGS.items():
        name = name.replace(spelling, short)
    name = _LAMBDA.sub(lambda found: f"<{found[1]}>" if found[1] else f"#{found[2]}", name)
    for _ in range(_DEEPEST):
        shorter = _ARGUMENTS.sub("", name)
        if shorter == name:
            break
        name = shorter
    return _QUALIFIERS.sub("", name)


def _is_balanced(text: str) -> bool:
    depth = deepest = 0
    for sign in text:
        depth += (sign == "<") - (sign == ">")
        deepest = max(deepest, depth)
        if depth < 0:
            return False
    return depth == 0 and deepest <= _DEEPEST


def _describe(text: str) -> str:
    pieces = _split(_split(text.strip(), " ")[-1], "::")
    name, *lists = _take_apart(pieces[-1])
    base, *cases = name.split("#")
    arguments = [_describe(argument) for each in lists for argument in _split(each, ",")]
    if base in _WRAPPERS and arguments:
        return arguments[0]
    arguments = [argument for argument in arguments if not _LAYOUT.match(argument)]
    if _FAMILY.fullmatch(base):
        functors = [argument for argument in arguments if not argument.isdigit()]
        base, arguments = (base.replace("_kernel", ""), functors) if functors else (base, arguments)
    elif base in _VAGUE and len(pieces) > 1:
        base = f"{_take_apart(pieces[-2])[0]}::{base}"
    shown = [argument for i, argument in enumerate(arguments) if argument and not _repeats(arguments, i)]
    case = f"#{cases[-1]}" if cases else ""
    return f"{base}{case}<{', '.join(shown)}>" if shown else f"{base}{case}"


def _repeats(arguments: list[str], place: int) -> bool:
    """Return whether the argument at index `place` repeats its predecessor. Numbers and flags do not count: they
    distinguish kernels.
    """
    return place > 0 and arguments[place] == arguments[place - 1] and not _LITERAL.fullmatch(arguments[place])


def _take_apart(text: str) -> list[str]:
    """Return a C++ name, followed by the contents of each list of template arguments."""
    found, depth, begin = [text.partition("<")[0]], 0, 0
    for place, sign in enumerate(text):
        if sign == "<":
            begin = place + 1 if depth == 0 else begin
            depth += 1
        elif sign == ">":
            depth -= 1
            if depth == 0:
                found.append(text[begin:place])
    return found


def _split(text: str, separator: str) -> list[str]:
    """Return the pieces of a text between separators outside of template arguments, at least one."""
    pieces, depth, begin, place = [], 0, 0, 0
    while place < len(text):
        depth += (text[place] == "<") - (text[place] == ">")
        if depth == 0 and text.startswith(separator, place):
            pieces.append(text[begin:place])
            begin = place = place + len(separator)
        else:
            place += 1
    return [*(piece for piece in pieces if piece), text[begin:]]


# cuBLAS and CUTLASS: sgemm, simt; cuDNN: scudnn, the engines and Winograd kernels of float, implicit_convolve_sgemm.
FULL_PRECISION = re.compile(r"sgemm|scudnn|simt_s|_engine<float|winograd\w*<float|(?<!t)f32f32_f32f32_f32")


def find_full_precision(rank: RankRun) -> float | None:
    """Return the share of kernel time in kernels that multiply 32-bit floats in full precision. Collectives do not
    count.

    The kernels are recognised by names from NVIDIA's libraries. None without kernels. Raises as `read_rows` does.
    """
    kernels = read_rows(rank, "kernels", ("name", "collective", "total_ns"))
    kernels = kernels.filter(pc.invert(kernels["collective"]))
    sums = kernels.group_by("name").aggregate([("total_ns", "sum")])
    total = pc.sum(sums["total_ns_sum"]).as_py() or 0
    rows = zip(sums["name"].cast(pa.string()).to_pylist(), sums["total_ns_sum"].to_pylist(), strict=True)
    full = sum(time_ns for name, time_ns in rows if FULL_PRECISION.search(name))
    return full / total if total else None
