"""Where a model attends: modules that may, and those that made no call; a mode and a table."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Set
from typing import Any

from sparsity.attention.library import torch
from sparsity.attention.torch.call import Unseen
from sparsity.errors import InputError

INTERFACE = ("sdpa", "flex_attention", "eager")  # entries of transformers' table that are read
_EAGER_SUFFIX = "eager_attention_forward"  # of the name of a model's own function, in its file


class Hook:
    """A hook of a module, which does nothing while code is compiled."""

    def __init__(self, act: Callable[[Any], None]) -> None:
        self.act, self.compiling = act, torch.compiler.is_compiling

    def __call__(self, part: Any, *rest: Any) -> None:
        if not self.compiling():
            self.act(part)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a function that does nothing, so that models are copied and saved meanwhile."""
        return getattr, (contextlib.nullcontext(), "__exit__")


def without_orig_mod(path: str) -> str:
    """Return the path that a module has where nothing in the model is compiled."""
    return ".".join(part for part in path.split(".") if part != "_orig_mod")


def parts_that_may_attend(module: Any, compiled: Set[Any]) -> Iterator[Any]:
    """Yield a module and its parts, but for PyTorch's own and for what runs compiled.

    A hook in PyTorch's layers of `MultiheadAttention` would turn their fused path off.
    """
    nn = torch.nn
    fused = nn.MultiheadAttention, nn.TransformerEncoderLayer
    if module in compiled or isinstance(module, fused):
        return
    of_torch = type(module).__module__.startswith("torch.")
    if not of_torch or next(module.children(), None) is not None:
        yield module
    for part in module.children():
        yield from parts_that_may_attend(part, compiled)


def in_backward() -> bool:
    """Return whether a backward pass runs in this thread; PyTorch has no public word for it."""
    return torch._C._current_graph_task_id() != -1


def refuse_traces() -> None:
    """Refuse a call that is being recorded, where what is computed beside it would be too.

    Raises:
        Unseen: it is.
    """
    if torch.jit.is_tracing():
        raise Unseen("is being traced by torch.jit")
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise Unseen("is being captured as a CUDA graph")


def refuse_unseen(model: Any) -> None:
    """Refuse a model of which no call can be seen.

    Raises:
        InputError: a model of TorchScript, or of transformers with an attention of another name.
    """
    for part in model.modules():
        if isinstance(part, torch.jit.ScriptModule):
            fix = "is TorchScript, whose code cannot be watched; give the module it was made from"
            raise InputError("model", type(part).__name__, fix)
        name = getattr(getattr(part, "config", None), "_attn_implementation", None)
        if name not in (None, *INTERFACE):
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


@functools.cache
def mode_class() -> Any:
    """Return the class of modes that show calls of `scaled_dot_product_attention`."""
    attend = torch.nn.functional.scaled_dot_product_attention
    is_compiling = torch.compiler.is_compiling  # looked up here: what follows may be compiled

    class ShowAttention(torch.overrides.TorchFunctionMode):
        def __init__(self, show: Callable[..., None]) -> None:
            super().__init__()
            self.show = show

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
            kwargs = kwargs or {}
            output = function(*args, **kwargs)
            if function is attend and not is_compiling():
                self.show(function, args, kwargs, output)
            return output

    return ShowAttention


def without_modes() -> Any:
    """Leave the modes of PyTorch's functions, and what subclasses of tensors make of them."""
    return torch._C.DisableTorchFunction()


def tables_of(model: Any) -> list[Any]:
    """Return the tables of attention functions that modules of transformers look theirs up in."""
    tables = {}
    for kind in {kind for part in model.modules() for kind in type(part).__mro__}:
        table = _globals_of_forward(kind).get("ALL_ATTENTION_FUNCTIONS")
        if table is not None:
            tables[id(table)] = table
    return list(tables.values())


def _globals_of_forward(kind: type) -> dict[str, Any]:
    """Return the names that the forward of a class finds in its file."""
    return getattr(inspect.unwrap(vars(kind).get("forward") or id), "__globals__", {})


def eager_function(kind: type) -> Any:
    """Return the eager attention function that a class of transformers calls, from its file."""
    for base in kind.__mro__:
        names = _globals_of_forward(base)
        if "ALL_ATTENTION_FUNCTIONS" in names:
            used = inspect.unwrap(vars(base)["forward"]).__code__.co_names
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
