"""A watch over a PyTorch model: some rows of every call of attention, and nothing is changed.

All of it runs inside the user's training step, so that no error leaves it there: what fails is
noted in `unseen` with its reason.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from sparsity.attention.library import torch
from sparsity.attention.monitoring.logs import log
from sparsity.attention.monitoring.step import sample_rows
from sparsity.attention.torch.call import Call, Output, Unseen
from sparsity.attention.torch.interception import Interceptor
from sparsity.attention.torch.rows import measure_rows
from sparsity.checks import check_whole
from sparsity.errors import InputError

_NO_PASS = (
    "did not run, or ran as compiled code; call the watched model itself, give the watch what "
    "torch.compile returned, or run the steps to be watched in "
    'torch.compiler.set_stance("force_eager")'
)


class Watch:
    """A context in which the attention of a model is measured while it trains or runs.

    A watch sees modules that call `torch.nn.functional.scaled_dot_product_attention`, and models of
    transformers with the attention "sdpa", "eager" or "flex_attention" (`interception`). Some rows
    of every call are computed again beside it, without gradient and without random numbers, and
    must make what the call made. Outputs, gradients and the state of random numbers stay the same,
    and nothing is raised in a pass. What could not be seen is in `unseen`, and is said once by
    `warnings.warn` when the watch is read or ends.

    A pass is a call of the model or of a part of it from outside. Further calls of one module in a
    pass, as of layers that share it, are told apart as "path#0", "path#1" …, in their order. Calls
    in a backward pass, such as those that checkpoints compute again, do not count.

    A compiled model, or one with compiled parts, runs as it was compiled; in a pass that is looked
    at it is computed again beside that, uncompiled, without gradient, and must give the same up to
    rounding (`replay`). It is to be compiled before the watch is entered, and given to the watch as
    `torch.compile` returned it. Of a model in DistributedDataParallel or FSDP2 the part of this
    process is seen. PyTorch's `MultiheadAttention` is not seen; beside other attention, in `eval()`
    without gradient, a pass that is looked at leaves its fused path, which rounds otherwise.

    Args:
        model: a module of PyTorch, compiled or not.
        rows: how many rows of a call, log-spaced with the last; or their positions; None for all.
        every: one of so many passes is looked at, from the first on.

    Attributes:
        unseen: by path of a module, why a call of it could not be seen; empty where all were.

    Raises:
        InputError: no module, bad numbers, or an attention of transformers that is not seen.
    """

    def __init__(self, model: Any, *, rows: Any = 16, every: int = 1) -> None:
        if not isinstance(model, torch.nn.Module):
            raise InputError("model", type(model).__name__, "give a torch.nn.Module")
        # Lengths are not known yet: a number of rows is checked here, positions at each call.
        sample_rows(1, rows if np.ndim(rows) == 0 else None)
        self.rows = rows
        self._calls = Interceptor(model, self._measure, check_whole("every", every, 1))
        self.model, self.unseen = self._calls.model, self._calls.unseen
        self._heads: dict[str, int] = {}
        self._warned: set[str] = set()  # reasons, without their details

    def __repr__(self) -> str:
        state = "open" if self._calls.opened else "closed"
        seen = len({path.partition("#")[0] for path, _ in self._calls.kept})
        unseen = len(self.unseen)
        return f"Watch({type(self.model).__name__}, {state}: {seen} modules seen, {unseen} not)"

    def __enter__(self) -> Watch:
        self._calls.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._calls.__exit__(*error)
        if error == (None, None, None):
            self._warn_of_unseen(idle=not self._calls.begun)

    def read(self) -> dict[str, dict[str, np.ndarray]]:
        """Return what was seen since the last reading: by module and name, arrays [heads, rows].

        Raises:
            InputError: the watch was never entered.
        """
        if not self._calls.names:
            fix = 'sees nothing before it is entered; write "with Watch(model) as watch:"'
            raise InputError("watch", "not entered", fix)
        self._warn_of_unseen(idle=self._calls.opened is not None)
        seen: dict[str, list[dict[str, Any]]] = {}
        for path, rows in self._calls.clear():
            seen.setdefault(path, []).append(rows)
        # Only now is it known which modules attended several times in a pass.
        several = {path.partition("#")[0] for path in seen if "#" in path}
        named = {f"{path}#0" if path in several else path: x for path, x in seen.items()}
        return {path: _join_calls(parts) for path, parts in named.items()}

    def log(self, **options: Any) -> dict[str, float]:
        """Return the same as names and floats; {} if nothing is new.

        Args:
            **options: heads, of, last, as `sparsity.monitoring.log` takes them.
        """
        seen = self.read()
        return log(seen, **options) if seen else {}

    def _measure(self, path: str, call: Call, made: Output) -> dict[str, Any]:
        """Return statistics of some rows of a call that makes what it made."""
        heads = call.query.shape[1]
        if self._heads.setdefault(path, heads) != heads:
            raise Unseen("has another number of heads than at its calls before")
        return measure_rows(call, self.rows, made)

    def _warn_of_unseen(self, idle: bool) -> None:
        """Warn once of what was not seen: one warning a reason, naming one of its modules.

        Args:
            idle: whether to warn as well if there was no pass since the last reading.
        """
        if idle and not self._calls.passes and not self.unseen:
            self.unseen["model"] = _NO_PASS
        self._calls.note_silent_modules()
        kinds: dict[str, tuple[str, list[str]]] = {}
        for path, reason in self.unseen.items():
            kind = reason.partition(": ")[0]
            if kind not in self._warned:
                kinds.setdefault(kind, (reason, []))[1].append(path)
        self._warned |= kinds.keys()
        for reason, paths in kinds.values():
            more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
            where = f"{paths[0]}{more} of {type(self.model).__name__}"
            warnings.warn(f"Watch: {where} is not seen: it {reason}", stacklevel=3)


def _join_calls(several: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Join the statistics of the calls of one module: [heads, batch · rows]."""

    def flat(x: Any) -> np.ndarray:
        x = np.moveaxis(x.cpu().numpy(), 1, 0)
        return x.reshape(len(x), -1)

    return {name: np.concatenate([flat(x[name]) for x in several], 1) for name in several[0]}
