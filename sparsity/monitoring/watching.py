"""A watch over a PyTorch model: it measures the calls of attention, and changes nothing."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from sparsity.arguments import whole
from sparsity.errors import InputError
from sparsity.models.checkpoint import library
from sparsity.monitoring import calls
from sparsity.monitoring.logs import log
from sparsity.monitoring.step import sampled
from sparsity.monitoring.tensors import numbers

_INTERFACE = ("sdpa", "flex_attention")  # implementations of transformers that have a name there
_EAGER = "eager_attention_forward"  # the one that every file of a model has for itself


class Watch:
    """A context in which the attention of a model is measured while it trains or runs.

    It sees modules that call `scaled_dot_product_attention` or `flex_attention`, and models of
    transformers with the attention "sdpa", "eager" or "flex_attention". Some rows of every call are
    computed again beside it, without gradient and without random numbers; outputs stay the same.
    At its end, and on exceptions, everything is as before. Watches may be nested.

    Compiled code is not seen: run a step to be watched in
    `torch.compiler.set_stance("force_eager")`. PyTorch's own fused attention, in `eval()` without
    gradient, is seen after `torch.backends.mha.set_fastpath_enabled(False)`.

    Args:
        model: a module of PyTorch.
        rows: how many rows of a call, log-spaced with the last; or their positions; None for all.
        every: how often: at every so many-th forward pass of the model, from the first on.

    Raises:
        InputError: no module, bad numbers, or an attention of transformers that is not seen.
    """

    def __init__(self, model: Any, *, rows: Any = 16, every: int = 1) -> None:
        torch = library("torch", "torch")
        if not isinstance(model, torch.nn.Module):
            raise InputError("model", type(model).__name__, "give a torch.nn.Module")
        sampled(1, rows if np.ndim(rows) == 0 else None)
        self.model, self.rows, self.every = model, rows, whole("every", every, 1)
        self._names = {part: name or "model" for name, part in model.named_modules()}
        self._open = ExitStack()
        self._seen: dict[str, list[dict[str, Any]]] = {}
        self._path: list[str] = []  # modules that are being called
        self._passes = self._looked = 0
        self._looking, self._inside = True, False

    def __enter__(self) -> Watch:
        _refuse_unseen(self.model)
        with ExitStack() as opened:
            for part, name in self._names.items():
                opened.callback(part.register_forward_pre_hook(self._begun(name)).remove)
                hook = part.register_forward_hook(self._ended, always_call=True)
                opened.callback(hook.remove)
            self._open_interface(opened)
            self._open_functions(opened)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def read(self) -> dict[str, dict[str, np.ndarray]]:
        """What was seen since the last reading: by module and name, arrays [heads, rows].

        Raises:
            InputError: the model ran, and called no attention function that is watched.
        """
        seen, looked = self._seen, self._looked
        self._seen, self._looked = {}, 0
        if looked and not seen:
            fix = "made no call of scaled_dot_product_attention or flex_attention; if it is "
            fix += 'compiled, run this step in torch.compiler.set_stance("force_eager"); if it is '
            fix += "PyTorch's own, after torch.backends.mha.set_fastpath_enabled(False)"
            raise InputError("model", type(self.model).__name__, fix)
        return {path: _joined(several) for path, several in seen.items()}

    def log(self) -> dict[str, float]:
        """The same as names and floats (see `sparsity.monitoring.log`); empty for no new pass."""
        found = self.read()
        return log(found) if found else {}

    def _begun(self, name: str) -> Callable[..., None]:
        def hook(part: Any, given: Any) -> None:
            if part is self.model:
                self._path.clear()  # of what an exception may have left
                self._looking = self._passes % self.every == 0
                self._passes += 1
                self._looked += self._looking
            self._path.append(name)

        return hook

    def _ended(self, part: Any, given: Any, output: Any) -> None:
        if self._path:
            self._path.pop()

    @contextmanager
    def _inner(self) -> Iterator[None]:
        """Calls that an attention function makes itself are not seen a second time."""
        outer, self._inside = self._inside, True
        try:
            yield
        finally:
            self._inside = outer

    def _around(self, function: Any, call: Callable[..., Any], name: Any) -> Any:
        """The function, measured: `name` says of whom, None where it is not watched."""
        torch = library("torch", "torch")

        @functools.wraps(function)
        def measured(*given: Any, **more: Any) -> Any:
            path = None if self._inside or torch.compiler.is_compiling() else name(*given, **more)
            if path is None:
                return function(*given, **more)
            if self._looking:
                with torch.no_grad(), torch.autocast(_device(torch, given, more), enabled=False):
                    found = numbers(call(*given, **more), self.rows)
                self._seen.setdefault(path, []).append(found)
            with self._inner():
                return function(*given, **more)

        return measured

    def _called(self, *given: Any, **more: Any) -> str | None:
        return self._path[-1] if self._path else None

    def _of_module(self, module: Any, *given: Any, **more: Any) -> str | None:
        return self._names.get(module)

    def _open_functions(self, opened: ExitStack) -> None:
        """Replace the functions wherever the files of the model's modules know them."""
        functional = library("torch.nn.functional", "torch")
        flex = library("torch.nn.attention.flex_attention", "torch")
        files = {type(part).__module__: sys.modules.get(type(part).__module__)
                 for part in self._names}  # fmt: skip
        owners = [functional, flex, *(x for x in files.values() if x not in (None, flex))]
        for home, name, call in (
            (functional, "scaled_dot_product_attention", calls.sdpa),
            (flex, "flex_attention", calls.flex),
        ):
            old = getattr(home, name)
            new = self._around(old, call, self._called)
            for owner in dict.fromkeys(owners):
                for own in [key for key, value in vars(owner).items() if value is old]:
                    _replace(opened, owner, own, new)
        for owner in dict.fromkeys(files.values()):
            old = getattr(owner, _EAGER, None)
            if old is not None:
                new = self._around(old, calls.of_interface("eager"), self._of_module)
                _replace(opened, owner, _EAGER, new)

    def _open_interface(self, opened: ExitStack) -> None:
        """Put measuring functions before those of transformers, where it is in use."""
        hf: Any = sys.modules.get("transformers.modeling_utils")
        for name in _INTERFACE if hf else ():
            interface, common = hf.ALL_ATTENTION_FUNCTIONS, hf.AttentionInterface()
            old = interface[name]
            interface[name] = self._around(old, calls.of_interface(name), self._of_module)
            if common[name] is old:
                opened.callback(interface.__delitem__, name)
            else:  # another watch is around this one
                opened.callback(interface.__setitem__, name, old)


def _replace(opened: ExitStack, owner: Any, name: str, new: Any) -> None:
    opened.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, new)


def _device(torch: Any, given: Any, more: Any) -> str:
    tensors = [x for x in (*given, *more.values()) if isinstance(x, torch.Tensor)]
    return tensors[0].device.type


def _joined(several: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Calls of one module together: [heads, batch · rows]."""

    def flat(x: Any) -> np.ndarray:
        x = np.moveaxis(x.cpu().numpy(), 1, 0)
        return x.reshape(len(x), -1)

    return {name: np.concatenate([flat(x[name]) for x in several], 1) for name in several[0]}


def _refuse_unseen(model: Any) -> None:
    """Refuse a model of transformers with an attention of another name."""
    known = (None, "eager", *_INTERFACE)
    for part in model.modules():
        name = getattr(getattr(part, "config", None), "_attn_implementation", None)
        if name not in known:
            fix = 'is not watched; call model.set_attn_implementation("sdpa") first'
            raise InputError("model", f"{type(part).__name__} with {name} attention", fix)
