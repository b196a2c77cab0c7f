"""The focus of attention while a model trains or runs, at a small share of a step's cost.

JAX: `monitor` and `penalty` inside the step, `log` outside it. PyTorch: `Watch` around it,
`torch_penalty` in it, `flex_n_eff` of FlexAttention. PyTorch is loaded on first use.
"""

from sparsity.attention.monitoring.logs import log, n_eff_exact
from sparsity.attention.monitoring.step import OF, monitor, penalty
from sparsity.attention.monitoring.tensors import flex_n_eff, torch_penalty
from sparsity.attention.monitoring.watching import Watch

__all__ = [
    "OF",
    "Watch",
    "flex_n_eff",
    "log",
    "monitor",
    "n_eff_exact",
    "penalty",
    "torch_penalty",
]
