"""The focus of attention while a model trains or runs, at a small share of a step's cost.

In JAX, `monitor` and `penalty` stand inside the step, and `log` outside it. In PyTorch a `Watch`
stands around the step, `torch_monitor` and `torch_penalty` in it: they are in
`sparsity.attention.torch`.

    JAX      queries, keys ── step ── streaming ──┐
                                                  ├── logs ── pictures
    PyTorch  Watch, torch_monitor ────────────────┘

`logs` calls a function where a logged number is beyond a bound, and `pictures` draws a training.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sparsity.attention.monitoring.logs import Crossing, alert, log, n_eff_exact
from sparsity.attention.monitoring.pictures import plot_training
from sparsity.attention.monitoring.step import OF, monitor, penalty

if TYPE_CHECKING:
    from sparsity.attention.torch.rows import torch_monitor, torch_penalty
    from sparsity.attention.torch.watch import Watch

__all__ = [
    "OF",
    "Crossing",
    "Watch",
    "alert",
    "log",
    "monitor",
    "n_eff_exact",
    "penalty",
    "plot_training",
    "torch_monitor",
    "torch_penalty",
]


def __getattr__(name: str) -> Any:
    """Load what is of PyTorch on first use: it imports this package for its logs."""
    if name in __all__:
        home = "watch" if name == "Watch" else "rows"
        return getattr(importlib.import_module(f"sparsity.attention.torch.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
