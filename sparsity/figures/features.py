"""Real features h(k) of Gaussian keys, for the figures of nonnegative linear attention."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq

from sparsity.figures.record import Context
from sparsity.kernels import Kernel
from sparsity.kernels.queries import named
from sparsity.kernels.zoo import relu
from sparsity.limit.quadrature import moment
from sparsity.sweeps.variables import cell_seed


def noise(feature: Kernel, mean: Any) -> np.ndarray:
    """σ̃/μ̃ of h(k), k ~ N(mean, 1), by quadrature of its first two moments."""
    (m1, _), (m2, _) = (moment(feature, p, mean, 1.0) for p in (1, 2))
    return np.sqrt(np.expm1(m2 - 2 * m1))


def center(ratio: float) -> float:
    """The mean of the keys that gives ReLU features the noise-to-signal ratio σ̃/μ̃."""
    return float(brentq(lambda mean: np.log(noise(relu, mean) / ratio), -4, 20, xtol=1e-12))  # type: ignore[arg-type]


def sample(
    context: Context, feature: Kernel, mean: float, query: str, dim: int
) -> tuple[tuple[float, float, int, int], str]:
    """S of q̃ᵀh(k) with k ~ N(mean, 1) drawn whole: (estimate, stderr, samples, seed), method."""
    from sparsity.sampling import Sampling, estimators

    seed = cell_seed(context.seed, feature.name, mean, query, dim)
    sampling = Sampling(context.rel_error, seed=seed, dtype=np.float32)
    found = estimators.features(feature, named(query).vector(dim), mean, 1.0, sampling)
    return (found.value, found.stderr, found.samples, found.seed), found.method
