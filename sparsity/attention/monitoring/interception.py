"""Watching a pass of a model: hooks tell when it runs, replaced functions show its calls."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

from sparsity.attention.checkpoints.checkpoint import library
from sparsity.attention.monitoring import calls
from sparsity.attention.monitoring.calls import Reader


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


INTERFACE = ("sdpa", "flex_attention")  # implementations of transformers that have a name there
_EAGER = "eager_attention_forward"  # the end of the name of the one that a model's file has itself

Listener = Callable[[Reader, Any, tuple[Any, ...], dict[str, Any], Any], None]


class Place(NamedTuple):
    """Where a function is known: under which name, and who reads its calls."""

    names: dict[str, Any]
    name: str
    reader: Any


@dataclass
class _Opened:
    """A place whose function is replaced, and by how many passes."""

    place: Place
    old: Any
    new: Any
    users: int = 0


class _Here(threading.local):
    """Of one thread: whether it is in an attention function, whose inner calls are not shown."""

    inside: bool = False


_HERE = _Here()
_LOCK = threading.RLock()
_OPENED: dict[tuple[int, str], _Opened] = {}
_LISTENERS: list[Listener] = []


def listen(listener: Listener, places: Sequence[Place]) -> Callable[[], None]:
    """Show a listener the calls of functions at these places, until what is returned is called."""
    with _LOCK:
        for place in places:
            key = id(place.names), place.name
            if key not in _OPENED:
                old = place.names[place.name]
                _OPENED[key] = _Opened(place, old, _around(old, place.reader))
                place.names[place.name] = _OPENED[key].new
            _OPENED[key].users += 1
        _LISTENERS.append(listener)
    left = [listener]

    def stop() -> None:
        with _LOCK:
            if not left:
                return
            _LISTENERS.remove(left.pop())
            for place in places:
                opened = _OPENED[id(place.names), place.name]
                opened.users -= 1
                if not opened.users:
                    del _OPENED[id(place.names), place.name]
                    if place.names.get(place.name) is opened.new:
                        place.names[place.name] = opened.old

    return stop


@contextmanager
def _as_before(given: tuple[Any, ...], more: dict[str, Any]) -> Iterator[None]:
    """Put the functions back for a call with tensors or modes that ask which function it is."""
    torch = library("torch", "torch")
    if not torch.overrides.has_torch_function((*given, *more.values())):
        yield
        return
    with _LOCK:
        hidden = list(_OPENED.values())
        for opened in hidden:
            opened.place.names[opened.place.name] = opened.old
        try:
            yield
        finally:
            for opened in hidden:
                opened.place.names[opened.place.name] = opened.new


@functools.cache
def _around(function: Any, reader: Reader) -> Any:
    """The function, which shows its calls to who listens."""
    torch = library("torch", "torch")

    @functools.wraps(function)
    def shown(*given: Any, **more: Any) -> Any:
        if torch.compiler.is_compiling() or _HERE.inside or not _LISTENERS:
            return function(*given, **more)
        if reader is calls.multi_head and not calls.makes_weights(function, given, more):
            return function(*given, **more)  # it calls a function that is shown
        _HERE.inside = True
        try:
            with _as_before(given, more):
                output = function(*given, **more)
            for listener in dict.fromkeys(_LISTENERS):  # a watch has one pass in each thread
                listener(reader, function, given, more, output)
        finally:
            _HERE.inside = False
        return output

    return shown


def places(modules: Sequence[Any]) -> list[Place]:
    """Where the attention functions are known that these modules of PyTorch may call."""
    files = {kind.__module__ for part in modules for kind in type(part).__mro__}
    own = [vars(sys.modules[name]) for name in sorted(files) if name in sys.modules]
    others = [vars(each) for name, each in list(sys.modules.items())
              if isinstance(each, ModuleType) and not name.startswith("torch.")]  # fmt: skip
    found: dict[tuple[int, str], Place] = {}

    def add(names: dict[str, Any], name: str, reader: Reader) -> None:
        found.setdefault((id(names), name), Place(names, name, reader))

    for home, name, reader in (
        ("torch.nn.functional", "scaled_dot_product_attention", calls.sdpa),
        ("torch.nn.functional", "multi_head_attention_forward", calls.multi_head),
        ("torch.nn.attention.flex_attention", "flex_attention", calls.flex),
    ):
        at_home = vars(library(home, "torch"))
        function = at_home[name]
        add(at_home, name, reader)
        for names in others:
            if names.get(name) is function:
                add(names, name, reader)
        for names in own:
            for alias in [key for key, value in names.items() if value is function]:
                add(names, alias, reader)
    for names in own:
        for name in [key for key in names if key.endswith(_EAGER)]:
            if inspect.isfunction(names[name]):
                add(names, name, calls.of_interface("eager"))
    hf: Any = sys.modules.get("transformers.modeling_utils")
    for name in INTERFACE if hf else ():
        interface = hf.ALL_ATTENTION_FUNCTIONS
        local = name in interface._local_mapping
        names = interface._local_mapping if local else interface._global_mapping
        add(names, name, calls.of_interface(name))
    return list(found.values())
