"""Tools to hook into other packages: changes that are undone exactly, hooks that Dynamo skips, a watch for imports.

Dynamo learns of the hooks without being imported. PyTorch imports Dynamo late, often when a model is wrapped in
DDP. An earlier import changes how a job ends: `torch.distributed.nn.functional`, which Dynamo imports, has the default
process group as default argument of its functions. Imported after `init_process_group`, the module keeps the group
until the process ends. Imported before, nothing keeps the group, and its destructor joins threads of gloo that may wait
for the interpreter lock (docs/concepts/testing.md).
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from threading import get_ident
from time import perf_counter_ns, time_ns
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from collector.edge import hide_frame, log_failure, uncounted, unseen

if TYPE_CHECKING:  # numpy must not come into a process before its script has begun
    from collector.ring.words import WordLog

_INHERITED = object()


def bind(log: WordLog) -> tuple[memoryview, int, Callable[[], int], list[int], Callable[[], int], Callable[[], int]]:
    """Return what a hook keeps in its closure to write to a log: words, mask, next position and thread of the log, the
    clock, and `get_ident`.

    A hook then writes a word by `words[following() & mask] = now() + CODE`, if `thread[0] == get_ident()`. Hooks are
    also made during a training, when a script may have replaced the clock and `get_ident` in their modules. So both are
    bound early.
    """
    return log.words, log.mask, log.following, log.thread, perf_counter_ns, get_ident


def do_nothing(*_: Any, **__: Any) -> None:
    """Accept any arguments and do nothing, in place of a function that does not exist."""


def make_span_hook(
    log: WordLog, original: Any, start: int, end: int, begin: Callable[..., object] | None = None
) -> Any:
    """Return a replacement for `original` that writes the word code `start` before, and `end` after, each call on the
    training thread.

    `begin` is called first, with the same arguments. Dynamo does not trace the replacement.
    """
    words, mask, following, thread, now, get_ident = bind(log)

    @uncounted
    def timed(*args: Any, **kwargs: Any) -> Any:
        try:
            if get_ident() != thread[0]:
                return original(*args, **kwargs)
            if begin is not None:
                begin(*args, **kwargs)
            words[following() & mask] = now() + start
            try:
                return original(*args, **kwargs)
            finally:
                words[following() & mask] = now() + end
        except BaseException as error:
            hide_frame(error)
            raise

    skip_code(timed.__code__)
    return functools.update_wrapper(timed, original, updated=())


def skip_code(code: CodeType) -> None:
    """Keep Dynamo from tracing a function of Stepscope, as `torch._dynamo.eval_frame.skip_code` does.

    This also holds if Dynamo is imported later.
    """
    eval_frame: Any = sys.modules.get("torch._C._dynamo.eval_frame")  # is there with torch itself
    if hasattr(eval_frame, "skip_code"):  # in C until PyTorch 2.6
        eval_frame.skip_code(code)
        return
    with suppress(AttributeError):  # private: without it Dynamo may break a graph at our function, and all else goes on
        action = eval_frame._FrameAction
        eval_frame.set_code_exec_strategy(code, eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT))


def find_place(frame: Any, left_out: tuple[str, ...]) -> str:
    """Return the innermost line, as file:line, whose file does not begin with any of `left_out`; "" if there is none."""
    while frame is not None and frame.f_code.co_filename.startswith(left_out):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else ""


def find_tracer() -> Callable[[], Any]:
    """Return a function whose result is true while Dynamo may trace called functions. A call makes no Python frame."""
    eval_frame = sys.modules.get("torch._C._dynamo.eval_frame")
    return getattr(eval_frame, "get_eval_frame_callback", bool)


def find_compiled_kind() -> Any:
    """Return the class of modules that `torch.compile` makes, for `isinstance`; () while no such module can exist."""
    return getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", ())


def is_backward_compiled() -> bool:
    """Return whether compiled autograd traces the backward that runs now."""
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(module, "compiled_autograd_enabled", False))


class ImportWatch:
    """An import finder in sys.meta_path that calls `then` once, after the import of module `name`. An exception of
    `then` reaches the importer."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name = name
        self.pid = os.getpid()
        self.span_unix_ns = (0, 0)  # when the import began and ended
        self._then = then

    @property
    def is_waiting(self) -> bool:
        return self in sys.meta_path

    def stop(self) -> None:
        if self.is_waiting:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find the watched module through the other finders, so that `then` follows its execution. Return None for
        other modules.

        The watch goes on until the module is executed: libraries only ask whether torch is there, and import it later.
        """
        if name != self.name:
            return None
        self.stop()
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Any) -> None:
        execute = loader.exec_module

        @uncounted
        def execute_then(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)  # set below, maybe by several watches: the loader is as it was
            is_first = self.is_waiting
            self.stop()
            began = time_ns()
            try:
                with unseen:
                    execute(module)
            except BaseException:
                if is_first:
                    sys.meta_path.insert(0, self)  # the script may import it again
                raise
            if is_first:
                self.span_unix_ns = began, time_ns()
                self._then()

        loader.exec_module = execute_then


class Undo:
    """A list of changes to objects of other packages. `restore` undoes each change exactly, the last change first."""

    def __init__(self) -> None:
        self._actions: list[Callable[[], object]] = []

    def patch(self, owner: Any, name: str, replacement: Any) -> None:
        """Set an attribute now. `restore` sets the old value, or deletes the attribute if the old value was inherited.

        If other code has patched the attribute since, `restore` leaves it: that patch goes on calling the replacement.
        """
        old = vars(owner).get(name, _INHERITED)
        setattr(owner, name, replacement)
        stored = vars(owner)[name]

        def restore() -> None:
            if vars(owner).get(name) is not stored:
                return
            if old is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, old)

        self._actions.append(restore)

    def call(self, action: Callable[[], object]) -> None:
        """Let `restore` call `action`, such as the `remove` of a hook's handle."""
        self._actions.append(action)

    def restore(self) -> None:
        """Undo all changes. A change that cannot be undone is logged, and the others are still undone."""
        while self._actions:
            with log_failure("could not undo a change"):
                self._actions.pop()()


def stop_calling(callback: Callable[..., object], callbacks: list[Callable[..., Any]]) -> None:
    """Remove a callback from a list of callbacks, if it is in the list."""
    if callback in callbacks:
        callbacks.remove(callback)
