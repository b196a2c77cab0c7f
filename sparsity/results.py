"""What comes out: an `Evaluation` of theory, an `Estimate` by sampling. Never a bare float."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


class _OfS:
    """What a result has only if it is of S."""

    quantity: str
    value: Any
    log_value: Any

    def _only(self, name: str, value: Any) -> Any:
        if self.quantity != "S":
            raise AttributeError(f"{name} is of S; this is {self.quantity}: read .value")
        return value

    @property
    def S(self) -> Any:
        """The value, if it is of S."""
        return self._only("S", self.value)

    @property
    def log_S(self) -> Any:
        """The log of the value, if it is of S."""
        return self._only("log_S", self.log_value)


@dataclass(frozen=True)
class Evaluation(_OfS):
    """S, or the limit of another quantity for long rows, by theory.

    Args:
        value: the quantity; may underflow to 0 where log_value does not.
        log_value: its logarithm, the number to trust at the extremes.
        method: the route that ran: "closed form", "quadrature", "summation", "limit form" or
            "limit of long rows".
        error_bound: bound on |Δ log value|, hence on the relative error; same shape.
        length: n over which the moments of a row were taken together; None for any.
        quantity: its name.
    """

    value: np.ndarray
    log_value: np.ndarray
    method: str
    error_bound: np.ndarray
    length: Any = None
    quantity: str = "S"

    @classmethod
    def from_log(cls, log_S: Any, method: str, error_bound: Any, length: Any = None) -> Evaluation:
        """Assemble from log S; S ≤ 1 holds exactly, as it must."""
        log_S = np.asarray(log_S, dtype=np.float64)
        if log_S.max(initial=0.0) > 0:
            log_S = np.minimum(log_S, 0.0)
        bound = np.broadcast_to(np.asarray(error_bound, dtype=np.float64), log_S.shape)
        with np.errstate(under="ignore"):
            return cls(np.exp(log_S), log_S, method, bound, length)


@dataclass(frozen=True)
class Exact(_OfS):
    """A quantity of rows of n tokens by the exact law.

    Args:
        quantity: its name.
        value: its mean over rows, in the shape of `length`.
        log_value: its logarithm.
        error_bound: bound on the relative error.
        method: the route that ran.
        length: n.
        p_nonzero: probability that a row is not all zero; the mean is over those that are not.
    """

    quantity: str
    value: np.ndarray
    log_value: np.ndarray
    error_bound: np.ndarray
    method: str
    length: np.ndarray
    p_nonzero: np.ndarray

    @property
    def S_rms(self) -> np.ndarray:
        """√(n_eff/n) of an n_eff, which tends to S as n → ∞."""
        if self.quantity != "n_eff":
            raise AttributeError(f"S_rms is √(n_eff/n); this is {self.quantity}")
        return np.sqrt(self.value / self.length)


@dataclass(frozen=True)
class Estimate(_OfS):
    """A quantity by sampling, with everything needed to judge it.

    Args:
        value: the estimate; may underflow to 0 where log_value does not.
        log_value: its logarithm.
        rel_stderr: standard error of its logarithm, i.e. its relative standard error.
        stderr: its standard error.
        ci95: its 95 % confidence interval, for this number of samples.
        anytime95: a wider one that holds at every moment one might have stopped at.
        samples: keys (or rows) drawn.
        ess: effective sample size of the worse of the two moments.
        dof: degrees of freedom of the standard error (independent batches − 1).
        tail_index: index ξ of the tail of the weighted draws; their variance is finite for ξ < ½.
        method: the sampler that ran.
        dtype: the arithmetic it ran in.
        device: where it ran.
        stopped: why it ended: "target reached", "sample budget", "time budget" or "interrupted".
        seconds: wall time, compilation included.
        seed: the seed; the same seed gives the same bits.
        warning: why the error bar cannot be trusted, or None.
        bar: what `stderr` is: a "standard error", or, where rounding or features that no draw may
            have met outweigh the scatter, a "bound" that covers more often than its intervals say.
        quantity: the name of what was estimated.
        length: n of the rows; None for long rows.
    """

    value: float
    log_value: float
    rel_stderr: float
    stderr: float
    ci95: tuple[float, float]
    anytime95: tuple[float, float]
    samples: int
    ess: float
    dof: int
    tail_index: float
    method: str
    dtype: str
    device: str
    stopped: str
    seconds: float
    seed: int
    warning: str | None = None
    bar: str = "standard error"
    quantity: str = "S"
    length: int | None = None

    @property
    def trusted(self) -> bool:
        """Whether the error bar may be believed."""
        return self.warning is None
