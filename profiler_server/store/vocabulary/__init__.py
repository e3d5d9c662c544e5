"""Public names: names that PyTorch defines, and words in the names of kernels of known libraries.

A whole name must be in the list, or fit a pattern of PyTorch with gaps. That its beginning fits does not suffice. Every
word of a kernel name must be known. `torch.txt` has the names that PyTorch registers, written by
`tests/support/torch_names.py`. `kernels.txt` has the words of PyTorch's own kernels (as named in `libtorch_cuda.so` of
2.13) and of libraries that PyTorch uses: CUDA, cuBLAS, cuDNN, CUTLASS, NCCL, FlashAttention, Triton and Inductor,
FBGEMM, vLLM, rocBLAS, MIOpen.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from collector.format.schema.wording import CALL_RANGE, REQUEST_RANGE

Rename = Callable[[str, str], str]
"""Takes the kind of a private name and the name; returns the replacement."""

_FORMS = (
    "autograd::engine::evaluate_function: {node}",
    "autograd::engine::evaluate_function: torch::autograd::{node}",
    "autograd::engine::evaluate_function: {function}Backward",
    "torch::autograd::{node}",
    "{function}Backward",
    "Optimizer.step#{optimizer}.step",
    "Optimizer.zero_grad#{optimizer}.zero_grad",
    "enumerate(DataLoader)#{iterator}.__next__",
    "nn.Module: {module}_{number}",
    "ProfilerStep#{number}",
    "ProfilerStep #{number}",
    "Torch-Compiled Region: {number}/{number}",
    "## Call CompiledFxGraph {graph} ##",
    "{backend}:{collective}",
    "Memcpy {direction} ({memory} -> {memory})",
    "Memcpy {direction}",
    "Memset ({memory})",
)
_WORDS: Mapping[str, frozenset[str]] = {
    "backend": frozenset(("nccl", "gloo", "mpi", "ucc", "xccl")),
    "collective": frozenset(
        (
            *("all_reduce", "broadcast", "reduce", "all_gather", "_all_gather_base", "reduce_scatter", "gather"),
            *("_reduce_scatter_base", "scatter", "all_to_all", "send", "recv", "barrier", "coalesced"),
            *("all_gather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced", "all_reduce_barrier"),
        )
    ),
    "direction": frozenset(("HtoD", "DtoH", "DtoD", "HtoH", "PtoP")),
    "memory": frozenset(("Device", "Pinned", "Pageable", "Host", "Managed", "Array", "Unknown")),
}
_WHOLE = frozenset(
    (
        *("inference", REQUEST_RANGE, CALL_RANGE),
        *("record_param_comms", "DistributedDataParallel.forward", "CompiledFunction", "CompiledFunctionBackward"),
        *("Buffer Flush", "Stream Sync", "Context Sync", "Event Sync", "Stream Wait Event", "INVALID", "Memset"),
        *(
            "TorchDynamo Cache Lookup",
            "Pregraph bytecode",
            "AOTDispatcher Runtime Wrapper Prologue",
            "detach",
            "detach_",
        ),
        *("torch::distributed::reducer::mul_out", "torch.distributed.ddp.reducer::copy_bucket_to_grad"),
        *("autograd::engine::evaluate_function: torch::jit::(anonymous namespace)::DifferentiableGraphBackward",),
        *("torch::jit::(anonymous namespace)::DifferentiableGraphBackward", "<forward op>", "<backward op>"),
        *("Iteration Start: PyTorch Profiler", "Record Window End", "PyTorch Profiler (0)", "torch.save", "torch.load"),
        *("(no operator: launched outside of all)", "(no operator: launched before the trace began)"),
    )
)
_ERRORS = frozenset(
    (
        *(name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)),
        *("AcceleratorError", "DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "LinAlgError"),
        *("OutOfMemoryError", "ProcessExitedException", "ProcessRaisedException"),
    )
)
"""Names of public exceptions, of Python and of PyTorch."""
_LONGEST_FORM = 400
_HOLE = re.compile(r"\{(\w+)\}")
_NUMBER = re.compile(r"\d+")
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LOOKS_LIKE_CODE = re.compile(r"::|\w[<(]")
_CODE = re.compile(r"[\w:<>(),*&\[\]{}#~+\- ]+", re.ASCII)
_HEAD = re.compile(r"(void )?(\w+(?:::\w+)*)(?=(::)?[<(])", re.ASCII)


def exchange_annotation(name: str, rename: Rename) -> str | None:
    """Return the name of an annotated range with the user's words replaced; None if all of it may be the user's."""
    return name if name in _WHOLE else _fill_form(name, rename)


def exchange_name(name: str, rename: Rename) -> str | None:
    """Return the name of an operator or slice with the user's words replaced; None if all of it may be the user's."""
    if _is_listed(name) or _is_made(name):
        return name
    found = exchange_annotation(name, rename)
    if found is not None:
        return found
    head = _HEAD.match(name)
    is_code = head is not None and (head[1] or "::" in head[0]) and all(map(is_spelled, _IDENTIFIER.findall(head[2])))
    return _exchange_code(name, rename) if is_code else None


def exchange_kernel(name: str, rename: Rename) -> str | None:
    """Return the name of a kernel with unknown identifiers replaced; None if the whole name may be the user's."""
    if name.isidentifier():
        return name if is_spelled(name) else None
    found = exchange_name(name, rename)
    return _exchange_code(name, rename) if found is None and _LOOKS_LIKE_CODE.search(name) else found


def exchange_error(text: str, rename: Rename) -> str | None:
    """Return an exception's type, with its message replaced; None if the type itself may be the user's."""
    kind, _, message = text.partition(": ")
    if kind not in _ERRORS:
        return None
    return f"{kind}: {rename('message', message)}" if message else kind


def is_spelled(text: str) -> bool:
    """Return whether every word of a text is a word of a known library. Numbers in the text are ignored."""
    return text.isascii() and split_words(text) <= _read_words()


def split_words(text: str) -> set[str]:
    """Return the words of a text in lower case: `ReduceOp_f32` gives reduce, op and f."""
    return {word.lower() for word in _WORD.findall(text)}


def _is_listed(name: str) -> bool:
    names = _read_names()
    return any(_NUMBER.sub("", name) in listed if kind == "node" else name in listed for kind, listed in names.items())


def _is_made(name: str) -> bool:
    """Return whether a name has the form of a generated kernel's name, or of a runtime call: cudaLaunchKernel."""
    first = _WORD.match(name)
    if first is None or not name.isidentifier() or not is_spelled(name):
        return False
    makers, runtimes = _read_makers()
    return first[0].lower() in makers or (first[0] in runtimes and name[first.end() :][:1].isupper())


def _fill_form(name: str, rename: Rename) -> str | None:
    if len(name) > _LONGEST_FORM:
        return None
    fitting = [(found, holes) for form, holes in _compile_forms() if (found := form.fullmatch(name))]
    for found, holes in fitting:
        if all(map(_is_public, holes, found.groups())):
            return name
    for found, holes in reversed(fitting):  # of several the narrower one stands later
        if not any(hole in _WORDS for hole in holes):
            return _fill_holes(found, holes, rename)
    return None


def _fill_holes(found: re.Match[str], holes: tuple[str, ...], rename: Rename) -> str:
    text = found.string
    for at in reversed(range(len(holes))):
        if not _is_public(holes[at], found[at + 1]):
            begin, end = found.span(at + 1)
            text = text[:begin] + _join(rename(holes[at], found[at + 1])) + text[end:]
    return text


def _is_public(hole: str, text: str) -> bool:
    if hole == "number":
        return text.isdigit()
    text = _NUMBER.sub("", text) if hole == "node" else text
    return text in _WORDS.get(hole, _read_names().get(hole, frozenset()))


def _exchange_code(name: str, rename: Rename) -> str | None:
    """Return a C++ name with unknown identifiers replaced; None for a text that is not C++."""
    if not _CODE.fullmatch(name):
        return None
    return _IDENTIFIER.sub(lambda found: found[0] if is_spelled(found[0]) else _join(rename("name", found[0])), name)


def _join(alias: str) -> str:
    return alias.replace(" ", "")


@cache
def _compile_forms() -> tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]:
    forms = []
    for form in _FORMS:
        pieces = _HOLE.split(form)
        pattern = "".join(r"(\w+)" if at % 2 else re.escape(piece) for at, piece in enumerate(pieces))
        forms.append((re.compile(pattern, re.ASCII), tuple(pieces[1::2])))
    return tuple(forms)


@cache
def _read_names() -> Mapping[str, frozenset[str]]:
    """Return the names that PyTorch registers, by kind: operator, node, function and so on."""
    found: dict[str, set[str]] = {}
    for header, names in _read_sections("torch.txt").items():
        kind, _, space = header.partition(" ")
        found.setdefault(kind, set()).update(f"{space}::{name}" if space else name for name in names)
    found["node"] = {_NUMBER.sub("", name) for name in found["node"]}
    return {kind: frozenset(names) for kind, names in found.items()}


@cache
def _read_words() -> frozenset[str]:
    words = {word for names in _read_sections("kernels.txt").values() for word in names}
    return frozenset(words.union(*map(split_words, _read_names()["operator"])))


@cache
def _read_makers() -> tuple[frozenset[str], frozenset[str]]:
    """Return the first words of names of generated kernels, and of runtime calls (`cuda` of cudaLaunchKernel)."""
    sections = _read_sections("kernels.txt")
    return frozenset(sections["makers"]), frozenset(sections["runtimes"])


def _read_sections(file: str) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / file).read_text("utf-8").splitlines():
        if line.startswith("["):
            names = sections.setdefault(line.strip("[]"), [])
        else:
            names += line.split()
    return sections
