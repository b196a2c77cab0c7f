"""Stands between models and the attention functions that they call, while a pass is looked at.

A function is replaced where it is known by name, in the dictionary of a module of Python or of
transformers, by one around it that calls it and shows the call to who listens. There is one such
function for each, so that code compiled in a pass stays valid in the next.
"""

from __future__ import annotations

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

INTERFACE = ("sdpa", "flex_attention")  # implementations of transformers that have a name there
_EAGER_SUFFIX = (
    "eager_attention_forward"  # the end of the name of the one that a model's file has itself
)

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


class _Thread(threading.local):
    """Of one thread: whether it is in an attention function, whose inner calls are not shown."""

    inside: bool = False


_THREAD = _Thread()
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
                _OPENED[key] = _Opened(place, old, _showing_calls(old, place.reader))
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
def _original_functions(given: tuple[Any, ...], more: dict[str, Any]) -> Iterator[None]:
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
def _showing_calls(function: Any, reader: Reader) -> Any:
    """The function, which shows its calls to who listens."""
    torch = library("torch", "torch")

    @functools.wraps(function)
    def shown(*given: Any, **more: Any) -> Any:
        if torch.compiler.is_compiling() or _THREAD.inside or not _LISTENERS:
            return function(*given, **more)
        if reader is calls.read_multi_head and not calls.makes_weights(function, given, more):
            return function(*given, **more)  # it calls a function that is shown
        _THREAD.inside = True
        try:
            with _original_functions(given, more):
                output = function(*given, **more)
            for listener in dict.fromkeys(_LISTENERS):  # a watch has one pass in each thread
                listener(reader, function, given, more, output)
        finally:
            _THREAD.inside = False
        return output

    return shown


def places_of_attention(modules: Sequence[Any]) -> list[Place]:
    """Where the attention functions are known that these modules of PyTorch may call."""
    files = {kind.__module__ for part in modules for kind in type(part).__mro__}
    own = [vars(sys.modules[name]) for name in sorted(files) if name in sys.modules]
    others = [vars(each) for name, each in list(sys.modules.items())
              if isinstance(each, ModuleType) and not name.startswith("torch.")]  # fmt: skip
    found: dict[tuple[int, str], Place] = {}

    def add(names: dict[str, Any], name: str, reader: Reader) -> None:
        found.setdefault((id(names), name), Place(names, name, reader))

    for home, name, reader in (
        ("torch.nn.functional", "scaled_dot_product_attention", calls.read_sdpa),
        ("torch.nn.functional", "multi_head_attention_forward", calls.read_multi_head),
        ("torch.nn.attention.flex_attention", "flex_attention", calls.read_flex),
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
        for name in [key for key in names if key.endswith(_EAGER_SUFFIX)]:
            if inspect.isfunction(names[name]):
                add(names, name, calls.of_interface("eager"))
    hf: Any = sys.modules.get("transformers.modeling_utils")
    for name in INTERFACE if hf else ():
        interface = hf.ALL_ATTENTION_FUNCTIONS
        local = name in interface._local_mapping
        names = interface._local_mapping if local else interface._global_mapping
        add(names, name, calls.of_interface(name))
    return list(found.values())
