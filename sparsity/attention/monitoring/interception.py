"""Interception of the calls of attention functions, while a pass is looked at.

A function is replaced where it is known by name, in the dictionary of a Python module or in the
table of implementations of transformers. Its replacement calls it and shows the call to all
listeners. There is one replacement for each function, whatever pass needs it, so that code that
PyTorch compiled in a pass (and guards by the identity of functions) stays valid in the next.

Hooks of modules would not do: they see what a module is given, not what it makes of that for its
attention function.
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

INTERFACE = ("sdpa", "flex_attention")  # the entries of transformers' table that can be read
# The end of the name under which each model's file of transformers defines its own eager attention.
_EAGER_SUFFIX = "eager_attention_forward"

Listener = Callable[[Reader, Any, tuple[Any, ...], dict[str, Any], Any], None]


class Place(NamedTuple):
    """A name in a dictionary under which a function is found, and the reader of its calls."""

    names: dict[str, Any]
    name: str
    reader: Any


@dataclass
class _Replaced:
    """A place whose function is replaced, and how many passes need it so."""

    place: Place
    old: Any
    new: Any
    users: int = 0


class _Thread(threading.local):
    """Whether a thread is in an attention function: calls inside it are not shown."""

    inside: bool = False


_THREAD = _Thread()
_LOCK = threading.RLock()
_REPLACED: dict[tuple[int, str], _Replaced] = {}
_LISTENERS: list[Listener] = []


def listen(listener: Listener, places: Sequence[Place]) -> Callable[[], None]:
    """Show a listener the calls of functions at these places.

    Passes may overlap in threads and nest, so that places are counted: a function is put back when
    the last pass that needs its place ends.

    Returns:
        A function that ends it; further calls of it do nothing.
    """
    with _LOCK:
        for place in places:
            key = id(place.names), place.name
            if key not in _REPLACED:
                old = place.names[place.name]
                _REPLACED[key] = _Replaced(place, old, _showing_calls(old, place.reader))
                place.names[place.name] = _REPLACED[key].new
            _REPLACED[key].users += 1
        _LISTENERS.append(listener)
    active = [listener]

    def stop() -> None:
        with _LOCK:
            if not active:
                return
            _LISTENERS.remove(active.pop())
            for place in places:
                replaced = _REPLACED[id(place.names), place.name]
                replaced.users -= 1
                if not replaced.users:
                    del _REPLACED[id(place.names), place.name]
                    # Someone else may have replaced it in the meantime: that stays.
                    if place.names.get(place.name) is replaced.new:
                        place.names[place.name] = replaced.old

    return stop


@contextmanager
def _original_functions(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
    """Put the functions back for a call with tensors or modes that ask which function it is.

    `__torch_function__` is given the function that was called and compares it with those it knows.
    Functions of PyTorch hand over what their name in the module stands for: the replacement.
    """
    torch = library("torch", "torch")
    if not torch.overrides.has_torch_function((*args, *kwargs.values())):
        yield
        return
    with _LOCK:
        hidden = list(_REPLACED.values())
        for replaced in hidden:
            replaced.place.names[replaced.place.name] = replaced.old
        try:
            yield
        finally:
            for replaced in hidden:
                replaced.place.names[replaced.place.name] = replaced.new


@functools.cache
def _showing_calls(function: Any, reader: Reader) -> Any:
    """Return a function that does the same and shows its calls to the listeners."""
    torch = library("torch", "torch")

    @functools.wraps(function)
    def shown(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or _THREAD.inside or not _LISTENERS:
            return function(*args, **kwargs)
        if reader is calls.read_multi_head and not calls.makes_weights(function, args, kwargs):
            return function(*args, **kwargs)  # it calls a function that is shown
        _THREAD.inside = True
        try:
            with _original_functions(args, kwargs):
                output = function(*args, **kwargs)
            for listener in dict.fromkeys(_LISTENERS):  # a watch has one pass in each thread
                listener(reader, function, args, kwargs, output)
        finally:
            _THREAD.inside = False
        return output

    return shown


def places_of_attention(modules: Sequence[Any]) -> list[Place]:
    """Return where the attention functions are known that these modules of PyTorch may call.

    A function is found under any name in the files that define the modules' classes, and under its
    own name in every other imported file, where a helper may have it by `from … import`.
    """
    files = {kind.__module__ for part in modules for kind in type(part).__mro__}
    own = [vars(sys.modules[name]) for name in sorted(files) if name in sys.modules]
    others = [vars(each) for name, each in list(sys.modules.items())
              if isinstance(each, ModuleType) and not name.startswith("torch.")]  # fmt: skip
    found: dict[tuple[int, str], Place] = {}

    def add(names: dict[str, Any], name: str, reader: Reader) -> None:
        # The first finding counts: a name may be found by two of the ways below.
        found.setdefault((id(names), name), Place(names, name, reader))

    own_of_torch = [
        (vars(library(home, "torch")), name, reader)
        for home, name, reader in (
            ("torch.nn.functional", "scaled_dot_product_attention", calls.read_sdpa),
            ("torch.nn.functional", "multi_head_attention_forward", calls.read_multi_head),
            ("torch.nn.attention.flex_attention", "flex_attention", calls.read_flex),
        )
    ]
    of_flash = [(names, name, calls.read_flash) for names, name in calls.flash_functions()]
    for at_home, name, reader in own_of_torch + of_flash:
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
    # A model of transformers looks its attention up in a table by name. An entry that a user has
    # registered stands in the local part of the table, before those of the library.
    hf: Any = sys.modules.get("transformers.modeling_utils")
    for name in INTERFACE if hf else ():
        interface = hf.ALL_ATTENTION_FUNCTIONS
        local = name in interface._local_mapping
        names = interface._local_mapping if local else interface._global_mapping
        add(names, name, calls.of_interface(name))
    return list(found.values())
