"""The passes of a model: where they begin and end, which module makes a call, and which makes none.

Hooks of modules show when a pass begins and ends. An attention function is not told which module
calls it: the frames of Python are searched for methods of modules. What is computed for a watch
leaves no trace in the pass itself. A module that a watch should see and cannot is refused
beforehand, or found silent afterwards.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Set
from typing import Any

from sparsity.attention.checkpoints.checkpoint import library
from sparsity.attention.monitoring import interception
from sparsity.attention.monitoring.call import Unseen
from sparsity.errors import InputError


class Hook:
    """A hook of a module, which does nothing while code is compiled or compiled code runs.

    Args:
        watch: the watch that it belongs to.
        act: what it does with the module that runs.
        only: the one module that a hook of all modules is for; None for a hook of one module.
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
        """Pickle as a function that does nothing, so that models are copied and saved meanwhile.

        It is one of the standard library: the file can be read without this package.
        """
        return getattr, (contextlib.nullcontext(), "__exit__")


@functools.cache
def _compiler_around() -> Callable[[], Any]:
    """Return a function that returns the compiler of frames, if PyTorch's is active in a thread.

    The compiler is set to leave the frames of hooks alone. Else it would compile them, which with
    the stance "fail_on_recompile" is an error.
    """
    frames = library("torch", "torch")._C._dynamo.eval_frame
    try:
        action = frames._FrameAction
        strategy = frames._FrameExecStrategy(action.SKIP, action.DEFAULT)
        frames.set_code_exec_strategy(Hook.__call__.__code__, strategy)
    except AttributeError:  # an older PyTorch has no such setting and compiles them
        return lambda: None
    return frames.get_eval_frame_callback


def may_recompile() -> bool:
    """Return whether PyTorch may compile code again, as it does when a function is replaced."""
    frames: Any = sys.modules.get("torch._dynamo.eval_frame")
    if frames is None:
        return True
    stance = getattr(getattr(frames, "_stance", None), "stance", None)
    fails = getattr(frames.config, "error_on_recompile", False)
    return stance != "fail_on_recompile" and not fails


def entrances(model: Any) -> list[Any]:
    """Return the modules that a pass may begin with: those that may attend and may be hooked.

    PyTorch's own modules without parts, such as Linear, cannot attend. A hook in PyTorch's encoder
    layer would turn its fused path off, and so change the output by rounding: neither it nor its
    parts are hooked, and if it is the model itself, `Watch` hooks all modules of the process.
    """
    torch = library("torch", "torch")
    fused = [x for x in model.modules() if isinstance(x, torch.nn.TransformerEncoderLayer)]
    unhooked = {inner for layer in fused for inner in layer.modules()}
    parts = [x for x in model.modules()
             if x not in unhooked and (next(x.children(), None) is not None
                                       or not type(x).__module__.startswith("torch."))]  # fmt: skip
    return parts if model in unhooked or model in parts else [model, *parts]


def in_backward() -> bool:
    """Return whether a backward pass runs in this thread."""
    torch = library("torch", "torch")
    return torch._C._current_graph_task_id() != -1


def _frames() -> Iterator[tuple[Any, Any]]:
    """Iterate over the code that runs, innermost first, each with its first argument.

    The first argument of a method is the module. It is taken from `f_locals` by its name, which
    need not be "self".
    """
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_argcount:
            yield code, frame.f_locals.get(code.co_varnames[0])
        frame = frame.f_back


def modules_around() -> Iterator[Any]:
    """Return the modules whose methods run, innermost first."""
    module = library("torch", "torch").nn.Module
    return (first for _, first in _frames() if isinstance(first, module))


def depth(part: Any) -> int:
    """Return how many calls of a module are running, one inside the other."""
    call = library("torch", "torch").nn.Module._call_impl.__code__
    return sum(code is call and first is part for code, first in _frames())


class Pass:
    """A pass is a call of a model, or of a part of it, from outside, in one thread.

    Args:
        entrance: the module that it begins with.
        looking: whether its calls are measured.
    """

    def __init__(self, entrance: Any, looking: bool) -> None:
        self.entrance, self.looking = entrance, looking
        self.depth, self.relearnt = 1, False  # calls of the entrance; whether new parts were learnt
        self.stop: Callable[[], None] = lambda: None
        self._calls: Counter[str] = Counter()
        self._last: dict[str, tuple[Any, ...]] = {}

    def repeats_last_call(self, path: str, call: Any) -> bool:
        """Return whether a module attends from the same queries to the same keys as just before.

        Differential attention does so for each half of its values: its weights are one matrix.
        Weak references keep no memory alive, and a tensor in place of one that died is another.
        """
        own = tuple(weakref.ref(x) for x in (call.query, call.key))
        same = self._last.get(path)
        self._last[path] = own
        return same is not None and all(a() is b() for a, b in zip(same, own, strict=True))

    def name_call(self, path: str) -> str:
        """Count a call of a module and return its path, numbered after the first of a pass."""
        self._calls[path] += 1
        return path if self._calls[path] == 1 else f"{path}#{self._calls[path] - 1}"


@contextlib.contextmanager
def without_traces() -> Iterator[None]:
    """Leave no trace, in this context, in gradients, in modes of others, or in what is traced.

    Raises:
        Unseen: the call is part of a trace.
    """
    torch = library("torch", "torch")
    if torch.jit.is_tracing():
        raise Unseen("is being traced by torch.jit")
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise Unseen("is being captured as a CUDA graph")
    modes = library("torch.utils._python_dispatch", "torch")._disable_current_modes
    with modes(), torch._C.DisableTorchFunction(), torch.no_grad():
        yield


def refuse_unseen(model: Any) -> None:
    """Refuse a model that a watch cannot see at all.

    Raises:
        InputError: a model of TorchScript, or of transformers with an attention of another name.
    """
    torch = library("torch", "torch")
    known = (None, "eager", *interception.INTERFACE)
    for part in model.modules():
        if isinstance(part, torch.jit.ScriptModule):
            fix = "is TorchScript, whose code cannot be watched; give the module it was made from"
            raise InputError("model", type(part).__name__, fix)
        name = getattr(getattr(part, "config", None), "_attn_implementation", None)
        if name not in known:
            fix = 'is not watched; call model.set_attn_implementation("sdpa") first'
            raise InputError("model", f"{type(part).__name__} with {name} attention", fix)


def is_attention(part: Any) -> bool:
    """Tell whether a module is named as attention, and projects its own queries and keys."""
    # Modules without parameters are those that only hold the function, inside one that projects.
    return "attention" in type(part).__name__.lower() and next(part.parameters(), None) is not None


def innermost_silent(ran: Set[str], known: Set[str], attentions: Set[str]) -> list[str]:
    """Return the paths of modules that ran and of which nothing is known, the innermost ones.

    Attention modules may stand inside each other, and either may make the call: one is silent only
    if nothing is known of it, of a part of it, or of an attention module around it.

    Args:
        ran: paths of the modules that should have made a call.
        known: paths of the modules that were seen, or have a reason why not.
        attentions: paths of the modules that are named as attention.
    """
    silent = {
        x
        for x in ran
        if not any(_is_within(y, x) or (_is_within(x, y) and y in attentions) for y in known)
    }
    return sorted(x for x in silent if not any(x != y and _is_within(y, x) for y in silent))


def _is_within(path: str, other: str) -> bool:
    """Return whether a module is another one or a part of it, by their paths."""
    return path == other or path.startswith(f"{other}.")
