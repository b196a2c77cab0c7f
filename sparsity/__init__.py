"""How sharply can this attention mechanism focus?

S = E|a| / √(E a²) of attention weights a_j = f(q·k_j): derived, evaluated, estimated, verified.
JAX and SymPy load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sparsity._version import __version__ as __version__

if TYPE_CHECKING:
    import sparsity.attention.checkpoints as models  # noqa: F401  (the face says so)
    import sparsity.claims_ledger as ledger  # noqa: F401
    from sparsity import attention as attention
    from sparsity import figures as figures
    from sparsity import kernels as kernels
    from sparsity import report as report
    from sparsity import stacks as stacks
    from sparsity.attention import measurement as measurement
    from sparsity.attention import monitoring as monitoring
    from sparsity.attention import streaming as streaming
    from sparsity.attention.measurement import measure as measure
    from sparsity.attention.measurement.probing import Probed as Probed
    from sparsity.attention.measurement.probing import probe as probe
    from sparsity.attention.monitoring import monitor as monitor
    from sparsity.attention.streaming import stream as stream
    from sparsity.claims_ledger import claims as claims
    from sparsity.crosscheck.verify import verify as verify
    from sparsity.derivation import derive as derive
    from sparsity.design_search import design as design
    from sparsity.design_search.monotone import sink_logit as sink_logit
    from sparsity.errors import InputError as InputError
    from sparsity.errors import NoClosedForm as NoClosedForm
    from sparsity.errors import TooFine as TooFine
    from sparsity.exact_law.exact import exact as exact
    from sparsity.exact_law.regimes import regime as regime
    from sparsity.kernels import Kernel as Kernel
    from sparsity.kernels import RowMap as RowMap
    from sparsity.kernels import score_kernel as score_kernel
    from sparsity.limit.evaluation import evaluate as evaluate
    from sparsity.metric import S as S
    from sparsity.metric import entropy as entropy
    from sparsity.metric import gini as gini
    from sparsity.metric import hoyer as hoyer
    from sparsity.metric import n_eff as n_eff
    from sparsity.panel import explore as explore
    from sparsity.plots import plot as plot
    from sparsity.results import Estimate as Estimate
    from sparsity.results import Evaluation as Evaluation
    from sparsity.results import Exact as Exact
    from sparsity.rows.row import Row as Row
    from sparsity.rows.scores import Empirical as Empirical
    from sparsity.rows.scores import Mixture as Mixture
    from sparsity.rows.scores import StudentT as StudentT
    from sparsity.rows.scores import Uniform as Uniform
    from sparsity.rows.steps import Alibi as Alibi
    from sparsity.rows.steps import Coca as Coca
    from sparsity.rows.steps import Decay as Decay
    from sparsity.rows.steps import LengthBias as LengthBias
    from sparsity.rows.steps import QKNorm as QKNorm
    from sparsity.rows.steps import Rope as Rope
    from sparsity.rows.steps import ScalableSoftmax as ScalableSoftmax
    from sparsity.rows.steps import Sink as Sink
    from sparsity.rows.steps import SinkLogit as SinkLogit
    from sparsity.rows.steps import Window as Window
    from sparsity.sampling import estimate as estimate
    from sparsity.sweeps.curves import sweep as sweep

_HOME = {
    "S": "metric",
    "entropy": "metric",
    "gini": "metric",
    "hoyer": "metric",
    "n_eff": "metric",
    "Alibi": "rows.steps",
    "Coca": "rows.steps",
    "Decay": "rows.steps",
    "Empirical": "rows.scores",
    "Estimate": "results",
    "Evaluation": "results",
    "Exact": "results",
    "InputError": "errors",
    "Kernel": "kernels",
    "LengthBias": "rows.steps",
    "Mixture": "rows.scores",
    "NoClosedForm": "errors",
    "QKNorm": "rows.steps",
    "Rope": "rows.steps",
    "Row": "rows.row",
    "RowMap": "kernels",
    "ScalableSoftmax": "rows.steps",
    "Sink": "rows.steps",
    "SinkLogit": "rows.steps",
    "StudentT": "rows.scores",
    "TooFine": "errors",
    "Uniform": "rows.scores",
    "Window": "rows.steps",
    "claims": "claims_ledger",
    "derive": "derivation",
    "design": "design_search",
    "estimate": "sampling",
    "evaluate": "limit.evaluation",
    "exact": "exact_law.exact",
    "explore": "panel",
    "regime": "exact_law.regimes",
    "measure": "attention.measurement",
    "monitor": "attention.monitoring",
    "Probed": "attention.measurement.probing",
    "plot": "plots",
    "probe": "attention.measurement.probing",
    "score_kernel": "kernels",
    "sink_logit": "design_search.monotone",
    "stream": "attention.streaming",
    "sweep": "sweeps.curves",
    "verify": "crosscheck.verify",
}

_PACKAGES = {
    "attention": "attention",
    "figures": "figures",
    "kernels": "kernels",
    "ledger": "claims_ledger",
    "measurement": "attention.measurement",
    "models": "attention.checkpoints",
    "monitoring": "attention.monitoring",
    "report": "report",
    "stacks": "stacks",
    "streaming": "attention.streaming",
}

__all__ = [*_PACKAGES, *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use."""
    if name in _PACKAGES:
        return importlib.import_module(f"sparsity.{_PACKAGES[name]}")
    if name in _HOME:
        return getattr(importlib.import_module(f"sparsity.{_HOME[name]}"), name)
    raise AttributeError(f"module 'sparsity' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])
