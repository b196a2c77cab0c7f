"""Families of nonnegative queries q̃ ∈ R^d and their norm ratio ρ = ‖q̃‖₂ / ‖q̃‖₁ ∈ [1/√d, 1]."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsity.checks import as_float64, check_choice
from sparsity.errors import InputError
from sparsity.special import ndtri


@dataclass(frozen=True)
class Query:
    """A family of query vectors, one for every dimension.

    Args:
        name: as written on the command line.
        vector: d -> q̃, float64 of shape [d].
        norm_ratio: d -> ρ, elementwise, where it is known without the vector.
    """

    name: str
    vector: Callable[[int], np.ndarray]
    norm_ratio: Callable[[np.ndarray], np.ndarray] | None = None


def _half_normal(dim: int) -> np.ndarray:
    """The d mid-point quantiles of |N(0, 1)|: a dense query whose ρ → √(π/2)/√d."""
    return ndtri(0.5 + (np.arange(dim) + 0.5) / (2 * dim))


ALL = (
    Query("uniform", np.ones, lambda dim: dim**-0.5),
    Query("one-hot", lambda dim: np.eye(1, dim)[0], np.ones_like),
    Query("half-normal", _half_normal),
)
NAMES = tuple(query.name for query in ALL)


def named(name: Any) -> Query:
    """The query family of that name.

    Raises:
        InputError: no such family.
    """
    return ALL[NAMES.index(check_choice("query", name, NAMES))]


_LARGEST = 10**8  # entries of a query that has to be written out


@functools.lru_cache(maxsize=4096)
def _norm_ratio(name: str, dim: int) -> float:
    if dim > _LARGEST:
        raise InputError("dim", dim, f"must be <= {_LARGEST:.0e} for a {name} query")
    vector = named(name).vector(dim)
    return float(np.sqrt(np.sum(vector * vector)) / np.sum(vector))


def norm_ratio(name: str, dim: Any) -> np.ndarray:
    """ρ = ‖q̃‖₂ / ‖q̃‖₁ of a family at each dimension.

    Args:
        name: the family.
        dim: dimensions, whole numbers ≥ 1, any shape.

    Returns:
        float64 of the shape of `dim`, in [1/√d, 1].
    """
    dims = np.asarray(dim, dtype=np.float64)
    known = named(name).norm_ratio
    if known is not None:
        return np.asarray(known(dims))
    flat = [_norm_ratio(name, int(x)) for x in dims.ravel()]
    return np.array(flat, dtype=np.float64).reshape(dims.shape)


def check_features(
    mean: Any = None, covariance: Any = None, query: Any = None, **others: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, covariance [d, d] and queries of nonnegative features that were measured.

    Args:
        mean: μ̃ = E k̃ of the features of a key, ≥ 0, [d].
        covariance: Σ̃ of them, [d, d]; [d] of independent ones.
        query: features q̃ ≥ 0 of queries, [..., d], each with a weight on average.
        **others: what else was given.

    Raises:
        InputError: other shapes or signs, no covariance, or anything else.
    """
    for name, value in others.items():
        if value is not None:
            fix = "features that were measured take mean, covariance and query"
            raise InputError(name, value, fix)
    m, sigma, q = (
        as_float64(value, name, "give the numbers of the features")
        for name, value in (("mean", mean), ("covariance", covariance), ("query", query))
    )
    sigma = np.diag(sigma) if sigma.ndim == 1 else sigma
    for name, array, good, fix in (
        ("mean", m, m.ndim == 1 and m.size and (m >= 0).all(), "give one number >= 0 a feature"),
        ("query", q, q.shape[-1:] == m.shape and (q >= 0).all(), "give as many numbers >= 0"),
        ("covariance", sigma, sigma.shape == (m.size, m.size), "give [d, d], or [d] variances"),
    ):
        if not (good and np.isfinite(array).all()):
            raise InputError(name, f"array of shape {array.shape}", fix)
    size = float(np.abs(sigma).max())
    least = float(np.linalg.eigvalsh((sigma + sigma.T) / 2)[0])
    if np.abs(sigma - sigma.T).max() > 1e-9 * size or least < -1e-9 * size * m.size:
        raise InputError("covariance", f"least eigenvalue {least:.3g}", "give a covariance matrix")
    if (np.diag(sigma)[m == 0] > 0).any():
        raise InputError("mean", "0", "a feature >= 0 of mean 0 is 0: give it no variance")
    if not ((q > 0) & (m > 0)).any(axis=-1).all():
        raise InputError("query", f"array of shape {q.shape}", "give it a weight on average")
    return m, sigma, q
