"""Where attention functions are found: a mode of PyTorch, and the table of transformers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from sparsity.attention.library import library

INTERFACE = ("sdpa", "flex_attention", "eager")  # entries of transformers' table that are read
_EAGER_SUFFIX = "eager_attention_forward"  # of the name of a model's own function, in its file


@functools.cache
def mode_class() -> Any:
    """Return the class of modes that show calls of `scaled_dot_product_attention`."""
    torch = library("torch", "torch")
    attend = torch.nn.functional.scaled_dot_product_attention

    class ShowAttention(torch.overrides.TorchFunctionMode):
        def __init__(self, show: Callable[..., None]) -> None:
            super().__init__()
            self.show = show

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
            kwargs = kwargs or {}
            output = function(*args, **kwargs)
            if function is attend and not torch.compiler.is_compiling():
                self.show(function, args, kwargs, output)
            return output

    return ShowAttention


def without_modes() -> Any:
    """Leave the modes of PyTorch's functions, and what subclasses of tensors make of them."""
    return library("torch", "torch")._C.DisableTorchFunction()


def tables_of(model: Any) -> list[Any]:
    """Return the tables of attention functions that modules of transformers look theirs up in."""
    found = {}
    for kind in {kind for part in model.modules() for kind in type(part).__mro__}:
        table = _globals_of_forward(kind).get("ALL_ATTENTION_FUNCTIONS")
        if table is not None:
            found[id(table)] = table
    return list(found.values())


def _globals_of_forward(kind: type) -> dict[str, Any]:
    """Return the names that the forward of a class finds in its file."""
    return getattr(inspect.unwrap(vars(kind).get("forward") or id), "__globals__", {})


def eager_function(kind: type) -> Any:
    """Return the eager attention function that a class of transformers calls, from its file."""
    for own in kind.__mro__:
        names = _globals_of_forward(own)
        if "ALL_ATTENTION_FUNCTIONS" in names:
            used = inspect.unwrap(vars(own)["forward"]).__code__.co_names
            return next(
                names[x] for x in (*used, *names) if x.endswith(_EAGER_SUFFIX) and x in names
            )
    raise LookupError(f"{kind.__name__} has no eager attention; choose sdpa")


def replace(table: Any, name: str, function: Any) -> Callable[[], None]:
    """Put a function into a table and return what puts it back as it was."""
    table[name] = function

    def put_back() -> None:
        function.ended = True
        if table.get(name) is not function:
            return  # another watch stands around this one, and puts back what is not ended
        old = function
        while getattr(old, "ended", False):
            old = old.inner
        del table[name]
        if table.get(name) is not old:  # it stood in this table, not in the one of all files
            table[name] = old

    return put_back
