"""How sharply can this attention mechanism focus?

S = E|a| / √(E a²) of attention weights a_j = f(q·k_j): derived, evaluated, estimated, verified.
JAX and SymPy load on first use; `__init__.pyi` tells type checkers what there is.
"""

from __future__ import annotations

import importlib
from typing import Any

from sparsity._version import __version__ as __version__

# Public name -> its module. Nothing is imported before it is asked for: `import sparsity` stays
# under a tenth of a second, and a script that only evaluates never loads JAX.
_HOME = {
    "S": "metric",
    "entropy": "metric",
    "gini": "metric",
    "hoyer": "metric",
    "n_eff": "metric",
    "Alibi": "rows.steps",
    "Coca": "rows.steps",
    "Decay": "rows.steps",
    "Empirical": "rows.score_laws",
    "Estimate": "results",
    "Evaluation": "results",
    "Exact": "results",
    "InputError": "errors",
    "Kernel": "kernels",
    "Gate": "rows.steps",
    "LengthBias": "rows.steps",
    "Mixture": "rows.score_laws",
    "needle_capacity": "limit.long_rows",
    "Needle": "rows.steps",
    "NeedleAbove": "rows.steps",
    "NoClosedForm": "errors",
    "QKNorm": "rows.steps",
    "Rope": "rows.steps",
    "Row": "rows.row",
    "RowMap": "kernels",
    "ScalableSoftmax": "rows.steps",
    "Sink": "rows.steps",
    "SinkLogit": "rows.steps",
    "StudentT": "rows.score_laws",
    "TooFine": "errors",
    "Uniform": "rows.score_laws",
    "SoftCap": "rows.steps",
    "Window": "rows.steps",
    "DynamicNtkScaling": "rows.rope_scaling",
    "LinearScaling": "rows.rope_scaling",
    "Llama3Scaling": "rows.rope_scaling",
    "NtkScaling": "rows.rope_scaling",
    "YarnScaling": "rows.rope_scaling",
    "Yarn": "rows.steps",
    "Temperature": "rows.steps",
    "ScaleInvariant": "rows.steps",
    "LogLength": "rows.steps",
    "FloorLog": "rows.steps",
    "Chunk": "rows.steps",
    "claims": "claims_ledger",
    "derive": "derivation",
    "describe": "attention.describe",
    "design": "design_search",
    "estimate": "sampling",
    "evaluate": "limit.evaluation",
    "exact": "exact_law.exact",
    "explore": "panel",
    "from_lse": "attention.fused",
    "fused_rows": "attention.fused",
    "largest_logit": "attention.largest_logit",
    "qk_clip": "attention.largest_logit",
    "regime": "exact_law.regimes",
    "measure": "attention.measurement",
    "monitor": "attention.monitoring",
    "plot": "plots",
    "score_kernel": "kernels",
    "sink_logit": "design_search.search",
    "stream": "attention.streaming",
    "sweep": "sweeps.curves",
    "verify": "crosscheck.verify",
}

# A package must not be called like a public function: once imported, it would replace the function
# as an attribute of `sparsity`. Hence `claims_ledger` for `claims`, and shorter public names here.
_PACKAGES = {
    "attention": "attention",
    "figures": "report.figures",
    "kernels": "kernels",
    "ledger": "claims_ledger",
    "measurement": "attention.measurement",
    "models": "attention.torch.models",
    "monitoring": "attention.monitoring",
    "report": "report",
    "stacks": "attention.stacks",
    "streaming": "attention.streaming",
}

__all__ = [*_PACKAGES, *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use."""
    if name in _PACKAGES:
        return importlib.import_module(f"sparsity.{_PACKAGES[name]}")
    if name in _HOME:
        return getattr(importlib.import_module(f"sparsity.{_HOME[name]}"), name)
    import difflib

    from sparsity.errors import WrongAttribute

    near = difflib.get_close_matches(name, __all__, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise WrongAttribute(f"module 'sparsity' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])
