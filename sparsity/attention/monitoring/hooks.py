"""Where passes of a model begin and end, and what runs around a call: hooks and frames."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from sparsity.attention.checkpoints.checkpoint import library


class Hook:
    """A hook of a module, which does nothing while code is compiled or compiled code runs.

    Args:
        watch: whose it is.
        act: what it does with a module.
        only: the one module that it is for; None for the one that it is registered with.
    """

    def __init__(self, watch: Any, act: Callable[[Any], None], only: Any = None) -> None:
        self.watch, self.act, self.only = watch, act, only
        self.compiling = library("torch", "torch").compiler.is_compiling
        self.compiler = _compiler_around()

    def __call__(self, part: Any, *rest: Any) -> None:
        if self.compiling() or self.only not in (None, part):
            return
        if self.compiler():
            self.watch.compiled = True
            return
        try:
            self.act(part)
        except Exception as error:  # noqa: BLE001  a pass goes on, whatever fails here
            self.watch.note("model", error)

    def __reduce__(self) -> tuple[Any, ...]:
        """In a copy of the model or its file: what does nothing, and needs nothing to be read."""
        return getattr, (contextlib.nullcontext(), "__exit__")


@functools.cache
def _compiler_around() -> Callable[[], Any]:
    """Tells whether PyTorch's compiler takes the frames of calls; it is to leave those of hooks.

    Else it compiled the hooks, which with the stance "fail_on_recompile" is an error.
    """
    frames = library("torch", "torch")._C._dynamo.eval_frame
    try:
        action = frames._FrameAction
        strategy = frames._FrameExecStrategy(action.SKIP, action.DEFAULT)
        frames.set_code_exec_strategy(Hook.__call__.__code__, strategy)
    except AttributeError:  # of an older PyTorch, which compiles them
        return lambda: None
    return frames.get_eval_frame_callback


def may_recompile() -> bool:
    """Whether compiled code may be compiled again, as it is for functions that were replaced."""
    frames: Any = sys.modules.get("torch._dynamo.eval_frame")
    if frames is None:
        return True
    stance = getattr(getattr(frames, "_stance", None), "stance", None)
    fails = getattr(frames.config, "error_on_recompile", False)
    return stance != "fail_on_recompile" and not fails


def entrances(model: Any) -> list[Any]:
    """Modules that a pass may begin with: all but those that cannot attend, or must not be hooked.

    A hook in PyTorch's encoder layer would turn its fused path off, and so change the output by
    rounding; it has none, unless it is the model itself.
    """
    torch = library("torch", "torch")
    fused = [x for x in model.modules() if isinstance(x, torch.nn.TransformerEncoderLayer)]
    left = {inner for layer in fused for inner in layer.modules()}
    parts = [x for x in model.modules() if x not in left and (next(x.children(), None) is not None
             or not type(x).__module__.startswith("torch."))]  # fmt: skip
    return parts if model in left or model in parts else [model, *parts]


def in_backward() -> bool:
    torch = library("torch", "torch")
    return torch._C._current_graph_task_id() != -1


def _frames() -> Iterator[tuple[Any, Any]]:
    """The code that runs, innermost first, each with its first argument."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_argcount:
            yield code, frame.f_locals.get(code.co_varnames[0])
        frame = frame.f_back


def modules_around() -> Iterator[Any]:
    """The modules whose methods run, innermost first."""
    module = library("torch", "torch").nn.Module
    return (first for _, first in _frames() if isinstance(first, module))


def depth(part: Any) -> int:
    """How often a module is being called, one call inside the other."""
    call = library("torch", "torch").nn.Module._call_impl.__code__
    return sum(code is call and first is part for code, first in _frames())
