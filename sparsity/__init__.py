"""How sharply can this attention mechanism focus?

S = E|a| / √(E a²) of attention weights a_j = f(q·k_j): derived, evaluated, estimated, verified.
JAX and SymPy load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparsity import kernels as kernels
    from sparsity.kernels import score_kernel as score_kernel
    from sparsity.ledger.ledger import claims as claims
    from sparsity.measurement import measure as measure
    from sparsity.montecarlo import estimate as estimate
    from sparsity.panel import explore as explore
    from sparsity.sweeps.curves import sweep as sweep
    from sparsity.symbolic import derive as derive
    from sparsity.theory.evaluation import evaluate as evaluate
    from sparsity.verification.crosscheck import verify as verify

__version__ = "0.1.0"

_HOME = {
    "claims": "ledger.ledger",
    "derive": "symbolic",
    "estimate": "montecarlo",
    "evaluate": "theory.evaluation",
    "explore": "panel",
    "measure": "measurement",
    "score_kernel": "kernels",
    "sweep": "sweeps.curves",
    "verify": "verification.crosscheck",
}

__all__ = [
    "claims",
    "derive",
    "estimate",
    "evaluate",
    "explore",
    "kernels",
    "measure",
    "score_kernel",
    "sweep",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use."""
    if name == "kernels":
        return importlib.import_module("sparsity.kernels")
    if name in _HOME:
        return getattr(importlib.import_module(f"sparsity.{_HOME[name]}"), name)
    raise AttributeError(f"module 'sparsity' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
