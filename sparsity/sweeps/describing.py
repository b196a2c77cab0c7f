"""What tells one sweep from another: the request in words and digests, as a store keeps it."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import numpy as np

from sparsity._version import __version__
from sparsity.kernels import RowMap
from sparsity.rows.scores import Empirical
from sparsity.sweeps.parts import Request


def description(request: Request) -> dict[str, Any]:
    """A request in JSON's own types: the same for the same results."""
    cells = request.cells
    grids = {}
    for name, values in cells.grids.items():
        digest = hashlib.sha256(str(values.tolist()).encode()).hexdigest()[:12]
        grids[f"grid {name}"] = f"{len(values)} values from {values[0]} to {values[-1]} ({digest})"
    kernel = cells.kernel
    weight = kernel.formula if isinstance(kernel, RowMap) else kernel.weight
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):  # arrays of one's own steps
        # A sample by its digest, which its repr is without.
        steps = [step.typed if isinstance(step, Empirical) else repr(step) for step in cells.steps]
    sampling = {
        "seed": request.seed,
        "rel_error": request.rel_error,
        "max_samples": request.most,
        "dtype": request.dtype or ("float64" if request.float64 else "float32"),
    }
    return {
        "kernel": kernel.name if weight is None else f"{kernel.name}: {weight}",
        "steps": ", ".join(steps) or "none",
        **grids,
        "of": ", ".join(quantity.name for quantity in request.asked) or "S",
        "limit": request.limit,
        "montecarlo": sampling if request.montecarlo else False,
        "sparsity": __version__,
    }
