"""The focus of a mixer that never forms its weights: probes in place of the values.

A mixer that is linear in its values answers a value v_j at every token j with o_i = Σ_j a_ij v_j.
Its weights a_ij are never formed, but n_eff = (Σ|a|)²/Σa² needs only two sums of each row, and both
are what random values measure: Σa² is the variance of o_i under random signs, Σ|a| its width under
Cauchy values, whose sums are Cauchy again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsity import metric
from sparsity.arguments import check_seed, flag, function, reals, whole
from sparsity.errors import InputError
from sparsity.kernels.parameters import LENGTH

MAX_VALUES = 2**28  # of all probes of a kind: 1 GiB in single precision
MIN_PROBES = 8  # of fewer the jackknife hardly knows its own error


@dataclass(frozen=True)
class Probed:
    """What probes say of every row of a mixer.

    Args:
        l1: Σ|a|, [..., rows].
        l2: Σa², likewise.
        l1_stderr: standard error of l1; 0 where it is exact.
        l2_stderr: standard error of l2.
        n_eff: (Σ|a|)²/Σa², without the bias of first order of a ratio; NaN for rows of zeros.
        n_eff_stderr: its standard error.
        mean: mean of n_eff over the rows that are not all zero.
        mean_stderr: its standard error; all rows answer the same probes.
        probes: of each kind.
        method: the kinds.
        seed: of the probes.
    """

    l1: np.ndarray
    l2: np.ndarray
    l1_stderr: np.ndarray
    l2_stderr: np.ndarray
    n_eff: np.ndarray
    n_eff_stderr: np.ndarray
    mean: float
    mean_stderr: float
    probes: int
    method: str
    seed: int

    @property
    def ci95(self) -> tuple[float, float]:
        """The 95 % confidence interval of `mean`."""
        return self.mean - 1.96 * self.mean_stderr, self.mean + 1.96 * self.mean_stderr


def probe(
    mixer: Callable[[Any], Any],
    length: int,
    *,
    probes: int = 256,
    nonnegative: bool = False,
    seed: int = 0,
) -> Probed:
    """Estimate how focused a mixer is from its answers to random values, in which it is linear.

    Rademacher values give E o² = Σa². With Cauchy values o is distributed as Σ|a|·C: the geometric
    mean of m of |o|, times cos(π/2m)^m, has the mean Σ|a| exactly. Error bars follow from both
    distributions.

    Args:
        mixer: values [length, probes], float32 -> outputs [..., rows, probes], NumPy or JAX.
        length: tokens that have values.
        probes: m of each kind, at least 8.
        nonnegative: whether no weight is negative; Σ|a| is then the answer to ones, exactly.
        seed: of the probes.

    Raises:
        InputError: outputs of another shape, not finite or all zero, a mixer that is not linear in
            its values, or negative weights in spite of `nonnegative`.

    Source: Rademacher, Hutchinson (1990); Cauchy projections, Li, Hastie and Church (2007).
    """
    length = int(LENGTH.one(length))
    function("mixer", mixer, "give a function of values [length, probes]")
    probes, nonnegative = whole("probes", probes, MIN_PROBES), flag("nonnegative", nonnegative)
    seed = check_seed(seed)
    if length * probes > MAX_VALUES:
        fix = f"takes {length * probes:.2g} values; length times probes may be {MAX_VALUES:.2g}"
        raise InputError("length", length, fix)
    rng = np.random.default_rng([seed, length])
    signs = rng.choice(np.array([-1.0, 1.0], np.float32), (length, probes))
    answers = _ask_mixer(mixer, signs)
    live = np.asarray(answers.any(axis=-1))
    if not live.any():
        raise InputError("mixer", "outputs", "must not be all zero")
    # Linearity is what all of this rests on. Half of the values is a test that normalising or
    # gating by the values fails; the tolerances leave room for half precision inside the mixer.
    half = _ask_mixer(mixer, signs / 2)
    if not np.allclose(half, answers / 2, rtol=1e-3, atol=1e-4 * np.abs(answers).max()):
        fix = "must be linear in its values: half of them do not give half of the outputs"
        raise InputError("mixer", "outputs", fix)
    if nonnegative:
        # Without negative weights no answer to signs exceeds that to ones, up to rounding.
        ones = _ask_mixer(mixer, np.ones((length, probes), np.float32))[..., :1]
        if not (np.abs(answers) <= 1.01 * ones + 1e-4 * np.abs(answers).max()).all():
            fix = "some weights are negative; leave it out"
            raise InputError("nonnegative", nonnegative, fix)
        sums, name = ones.repeat(probes, axis=-1), "ones"
    else:
        # Cauchy numbers by the inverse of their distribution function; other draws than the signs.
        cauchy = np.tan(np.pi * (rng.random((length, probes)) - 0.5)).astype(np.float32)
        sums, name = np.abs(_ask_mixer(mixer, cauchy)), "Cauchy"
    return _conclude(live, answers**2, sums, f"Rademacher and {name}", int(seed))


def _ask_mixer(mixer: Callable[[Any], Any], values: np.ndarray) -> np.ndarray:
    """Return the mixer's answers, [..., rows, probes], checked and in double precision."""
    found = np.asarray(reals("mixer", mixer(values), "must return real numbers"), np.float64)
    if found.ndim < 2 or found.shape[-1] != values.shape[-1]:
        fix = f"must return [..., rows, {values.shape[-1]}] for values {values.shape}"
        raise InputError("mixer", f"outputs of shape {found.shape}", fix)
    if not np.isfinite(found).all():
        raise InputError("mixer", "outputs", "holds NaN or infinite values")
    return found


def _conclude(
    live: np.ndarray, squares: np.ndarray, sums: np.ndarray, method: str, seed: int
) -> Probed:
    """Return sums and ratios with their error bars, those of the ratio by a jackknife over probes.

    Args:
        live: which rows are not all zero, [..., rows].
        squares: squared answers to Rademacher values, [..., rows, probes].
        sums: |answers| to Cauchy values, or to ones, likewise.
        method: the kinds of probes.
        seed: of the probes.
    """
    m, zero = squares.shape[-1], ~live[..., None]
    logs, squares = np.log(np.where(zero, 1.0, sums)), np.where(zero, 1.0, squares)
    exact = method.endswith("ones")

    # E|C|^p = 1/cos(pπ/2) for a Cauchy C, so that the geometric mean of `count` answers, to a
    # power, has the mean (Σ|a|)^power/cos(power·π/2count)^count. Times the factor below it is
    # free of bias.
    def unbiased(power: int, count: int) -> float:
        return 1.0 if exact else math.cos(power * math.pi / (2 * count)) ** count

    l2 = squares.mean(-1)
    l1 = np.exp(logs.mean(-1)) * unbiased(1, m)
    scatter = 0.0 if exact else math.sqrt(unbiased(1, m) ** 2 / unbiased(2, m) - 1)
    whole = metric.effective(np.exp(logs.mean(-1)), l2) * unbiased(2, m)
    # A ratio of unbiased estimates is biased by O(1/m). The jackknife removes that order and gives
    # the error: the same from all probes but one, for each of them.
    without = [(x.sum(-1, keepdims=True) - x) / (m - 1) for x in (logs, squares)]
    each = metric.effective(np.exp(without[0]), without[1]) * unbiased(2, m - 1)

    def jackknife(whole: Any, each: Any) -> tuple[Any, Any]:
        value = m * whole - (m - 1) * each.mean(-1)
        return value, np.sqrt((m - 1) * each.var(-1))

    n_eff, n_eff_stderr = jackknife(whole, each)
    # All rows answer the same probes, so their errors are correlated: the jackknife is of the
    # mean itself, not a sum over rows.
    mean, mean_stderr = jackknife(whole[live].mean(), each[live].mean(0))
    return Probed(
        l1=np.where(live, l1, 0.0),
        l2=np.where(live, l2, 0.0),
        l1_stderr=np.where(live, l1 * scatter, 0.0),
        l2_stderr=squares.std(-1, ddof=1) / math.sqrt(m),
        n_eff=np.where(live, n_eff, np.nan),
        n_eff_stderr=np.where(live, n_eff_stderr, np.nan),
        mean=float(mean),
        mean_stderr=float(mean_stderr),
        probes=m,
        method=method,
        seed=seed,
    )
