"""How sharply can this attention mechanism focus?

S = E|a| / √(E a²) of attention weights a_j = f(q·k_j): derived, evaluated, estimated, verified.
JAX and SymPy load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparsity import figures as figures
    from sparsity import kernels as kernels
    from sparsity import ledger as ledger
    from sparsity import measurement as measurement
    from sparsity import models as models
    from sparsity import monitoring as monitoring
    from sparsity import report as report
    from sparsity import stacks as stacks
    from sparsity import streaming as streaming
    from sparsity.errors import InputError as InputError
    from sparsity.errors import NoClosedForm as NoClosedForm
    from sparsity.errors import TooFine as TooFine
    from sparsity.finite.exact import exact as exact
    from sparsity.finite.regimes import regime as regime
    from sparsity.inversion.design import design as design
    from sparsity.inversion.sink_logit import sink_logit as sink_logit
    from sparsity.kernels import Kernel as Kernel
    from sparsity.kernels import RowMap as RowMap
    from sparsity.kernels import score_kernel as score_kernel
    from sparsity.ledger import claims as claims
    from sparsity.measurement import measure as measure
    from sparsity.measurement.probing import Probed as Probed
    from sparsity.measurement.probing import probe as probe
    from sparsity.monitoring import monitor as monitor
    from sparsity.montecarlo import estimate as estimate
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
    from sparsity.streaming import stream as stream
    from sparsity.sweeps.curves import sweep as sweep
    from sparsity.symbolic import derive as derive
    from sparsity.theory.evaluation import evaluate as evaluate
    from sparsity.verification.crosscheck import verify as verify

__version__ = "0.2.0"

_HOME = {
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
    "claims": "ledger",
    "derive": "symbolic",
    "design": "inversion.design",
    "estimate": "montecarlo",
    "evaluate": "theory.evaluation",
    "exact": "finite.exact",
    "explore": "panel",
    "regime": "finite.regimes",
    "measure": "measurement",
    "monitor": "monitoring",
    "Probed": "measurement.probing",
    "plot": "plots",
    "probe": "measurement.probing",
    "score_kernel": "kernels",
    "sink_logit": "inversion.sink_logit",
    "stream": "streaming",
    "sweep": "sweeps.curves",
    "verify": "verification.crosscheck",
}

_PACKAGES = (
    "figures",
    "kernels",
    "ledger",
    "measurement",
    "models",
    "monitoring",
    "report",
    "stacks",
    "streaming",
)

__all__ = [*_PACKAGES, *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use."""
    if name in _PACKAGES:
        return importlib.import_module(f"sparsity.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(f"sparsity.{_HOME[name]}"), name)
    raise AttributeError(f"module 'sparsity' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])
