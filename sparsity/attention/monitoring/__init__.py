"""The focus of attention while a model trains or runs, at a small share of a step's cost.

In JAX, `monitor` and `penalty` stand inside the step, and `log` outside it. In PyTorch a `Watch`
stands around the step, `torch_monitor` and `torch_penalty` in it, and `flex_n_eff` beside
FlexAttention. PyTorch is loaded on first use.

    JAX      queries, keys ── step ── streaming ──────────────────────────────┐
    PyTorch  passes        when a pass begins and ends, which module calls,    │
                           and which should and does not                       │
             interception  stands around the attention functions               ├── logs
             calls         reads what a function was given and gave: a Call    │
             call          logits of a Call; do its weights make the output?   │
             tensors       statistics of some rows ── watching ────────────────┘
             replay        compiled code: the same pass again, uncompiled, to be measured

`logs` calls a function where a logged number is beyond a bound, and `pictures` draws a training.
"""

from sparsity.attention.monitoring.logs import Crossing, alert, log, n_eff_exact
from sparsity.attention.monitoring.pictures import plot_training
from sparsity.attention.monitoring.step import OF, monitor, penalty
from sparsity.attention.monitoring.tensors import flex_n_eff, torch_monitor, torch_penalty
from sparsity.attention.monitoring.watching import Watch

__all__ = [
    "OF",
    "Crossing",
    "Watch",
    "alert",
    "flex_n_eff",
    "log",
    "monitor",
    "n_eff_exact",
    "penalty",
    "plot_training",
    "torch_monitor",
    "torch_penalty",
]
