"""Compiled code is watched by computing a pass again beside it, uncompiled.

Inside a compiled graph no Python runs, and an operator put into it would change what is compiled:
other fusions round otherwise, and the training would not be the same bits. So a compiled module
runs as it is. In a pass that is looked at, the module that it was compiled from then computes the
same inputs again in eager mode, without gradient and from the same random numbers, and these calls
are measured. What it gives must be what the compiled code gave, up to rounding: else the pass is
not seen, and the reason is said.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sparsity.attention.library import library, torch
from sparsity.attention.torch.call import Unseen

# How far outputs may be off each other, relative to their largest: fused code adds in another order
# and keeps more digits between operations. In float32 that leaves five digits, in half precision
# two.
_OFF_SINGLE, _OFF_HALF = 1e-3, 5e-2
_FORCE_EAGER = 'run the steps to be watched in torch.compiler.set_stance("force_eager")'


def without_wrappers(model: Any) -> Any:
    """Return the module inside what compiles it or makes it data parallel."""
    parallel = torch.nn.parallel.DistributedDataParallel
    while True:
        if isinstance(getattr(model, "_orig_mod", None), torch.nn.Module):
            model = model._orig_mod
        elif isinstance(model, parallel):
            model = model.module
        else:
            return model


def compiled_calls(model: Any) -> list[tuple[Any, str, Any]]:
    """Return the compiled modules in a model that stand in no other compiled one.

    Of each the module that has a callable which runs compiled code, the attribute that this is, and
    the module that it was compiled from.

    `torch.compile(module)` returns a module with a compiled `forward`; `module.compile()` sets what
    a call of the module runs.
    """
    if isinstance(getattr(model, "_orig_mod", None), torch.nn.Module):
        return [(model, "forward", model._orig_mod)]
    if getattr(model, "_compiled_call_impl", None) is not None:
        return [(model, "_compiled_call_impl", model)]
    return [call for part in model.children() for call in compiled_calls(part)]


def attach(
    calls: Sequence[tuple[Any, str, Any]], run: Callable[..., Any]
) -> Iterator[Callable[[], None]]:
    """Stand around compiled calls; yield functions that put each back.

    Args:
        calls: the compiled calls of a model.
        run: (module, computation, arguments, arguments by name) -> the output.
    """
    for owner, name, module in calls:
        # Through the dictionary of the instance: some wrappers hand attributes on to what they
        # wrap.
        attributes, compiled = vars(owner), getattr(owner, name)
        attributes[name] = functools.partial(_run, run, module, compiled)
        yield functools.partial(attributes.__setitem__, name, compiled)


def _run(
    run: Callable[..., Any], module: Any, compiled: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    if torch.compiler.is_compiling():
        return compiled(*args, **kwargs)
    return run(module, compiled, args, kwargs)


class Replay:
    """The inputs of a call of compiled code, kept so that it can be computed again.

    Args:
        module: what the code was compiled from.
        args: its arguments.
        kwargs: its arguments by name.

    Raises:
        Unseen: an argument that computing again might change, such as a cache of keys.
    """

    def __init__(self, module: Any, args: Any, kwargs: Any) -> None:
        self.module = without_wrappers(module)
        self.args, self.kwargs = _kept(args), _kept(kwargs)
        self._devices = sorted({x.device.index for x in self.module.parameters() if x.is_cuda})
        self._random = _random_states(self._devices)
        self._attributes = _attributes(self.module)

    def run(self, output: Any) -> None:
        """Compute the call again, uncompiled, and leave no trace in the model.

        Args:
            output: what the compiled code gave.

        Raises:
            Unseen: this gives something else, or draws other random numbers.
        """
        drawn = _random_states(self._devices)
        with contextlib.ExitStack() as context:
            context.enter_context(torch.random.fork_rng(self._devices))
            context.enter_context(torch.compiler.set_stance("force_eager"))
            context.enter_context(torch.no_grad())
            context.enter_context(_attributes_as_before(self._attributes))
            context.enter_context(_without_autocast_cache())
            torch.set_rng_state(self._random[0])
            for device, state in zip(self._devices, self._random[1:], strict=True):
                torch.cuda.set_rng_state(state, device)
            # `__call__` would run the compiled code of a module that was compiled in place.
            again = self.module._call_impl(*self.args, **self.kwargs)
            drawn_again = _random_states(self._devices)
        # Outputs would not always tell: dropout drawn otherwise may change a loss by little.
        if not all(torch.equal(x, y) for x, y in zip(drawn, drawn_again, strict=True)):
            raise Unseen(
                "is compiled, and draws random numbers, as for dropout, otherwise than uncompiled "
                f"code does; {_FORCE_EAGER}"
            )
        _require_same(_numbers(again), _numbers(output))


@contextlib.contextmanager
def _without_autocast_cache() -> Iterator[None]:
    """Cast weights anew in this context, and keep none for later calls in the same autocast.

    Autocast keeps them until its outermost context ends: a loop inside one, in which weights are
    trained, would find those of a pass before, as would what the user computes uncompiled.
    """
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def _random_states(devices: list[int]) -> list[Any]:
    """Return the states of the generators of random numbers of the CPU and of these GPUs."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(i) for i in devices)]


def _attributes(module: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Return the attributes of all parts of a module as they are, with copies of its buffers.

    A pass may count its calls, keep running means or the last of its queries.
    """
    copies = {id(x): x.detach().clone() for x in module.buffers()}
    return [
        (part, {**vars(part), "_buffers": {
            name: copies.get(id(x)) for name, x in part._buffers.items()}})
        for part in module.modules()
    ]  # fmt: skip


@contextlib.contextmanager
def _attributes_as_before(before: list[tuple[Any, dict[str, Any]]]) -> Iterator[None]:
    """Give parts of a module the attributes of before, and then the present ones back.

    Nothing is written into buffers: the backward pass that follows may need them, and refuses those
    that were written to.
    """
    present = [(part, dict(vars(part))) for part, _ in before]
    try:
        _set_attributes(before)
        yield
    finally:
        _set_attributes(present)


def _set_attributes(given: list[tuple[Any, dict[str, Any]]]) -> None:
    for part, attributes in given:
        held = vars(part)
        held.update(attributes)
        for name in held.keys() - attributes.keys():
            del held[name]


def _kept(x: Any) -> Any:
    """Return an argument as it is now: compiled code may change tensors in place.

    Raises:
        Unseen: it is no tensor, number or text, nor a collection of these.
    """
    if isinstance(x, torch.Tensor):
        return x.detach().clone()
    if type(x) in (list, tuple):
        return type(x)(_kept(item) for item in x)
    if type(x) is dict:
        return {name: _kept(item) for name, item in x.items()}
    plain = (str, int, float, bool, complex, type(None), torch.dtype, torch.device, torch.Size)
    masks = library("torch.nn.attention.flex_attention", "torch").BlockMask
    if isinstance(x, (*plain, masks)):
        return x
    raise Unseen(f"is compiled and given a {type(x).__name__}, which a second pass might change")


def _numbers(x: Any) -> list[Any]:
    """Return all tensors of floats in an output, in their order."""
    if isinstance(x, torch.Tensor):
        return [x.detach()] if x.is_floating_point() else []
    if isinstance(x, Mapping):
        return [tensor for value in x.values() for tensor in _numbers(value)]
    if isinstance(x, (list, tuple)):
        return [tensor for value in x for tensor in _numbers(value)]
    return []


def _require_same(outputs: list[Any], wanted: list[Any]) -> None:
    """Require that two outputs are the same up to rounding.

    Raises:
        Unseen: they are not, or there are no numbers to compare.
    """
    shapes = [[tuple(x.shape) for x in side] for side in (outputs, wanted)]
    if not wanted or shapes[0] != shapes[1]:
        raise Unseen("is compiled, and its output has no numbers to compare with uncompiled code")
    for x, y in zip(outputs, wanted, strict=True):
        half = torch.finfo(y.dtype).eps > 1e-4 or torch.finfo(x.dtype).eps > 1e-4
        finite = torch.isfinite(y)
        x, y, gone = x[finite].double(), y[finite].double(), x[~finite]
        most = (_OFF_HALF if half else _OFF_SINGLE) * y.abs().max() if y.numel() else 0.0
        if bool(torch.isfinite(gone).any()) or not bool(((x - y).abs() <= most).all()):
            raise Unseen(
                f"is compiled, and gives something else than uncompiled code; {_FORCE_EAGER}"
            )
