"""The results: an `Evaluation` or `Exact` of theory, an `Estimate` by sampling, both compared.

Never a bare float: each knows its error and its method, and how to be shown as a line, a table and
a pandas frame.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sparsity.errors import InputError, WrongAttribute, WrongType
from sparsity.tables import brief, data_frame, html_table, rows_of

if TYPE_CHECKING:
    import pandas


LIMIT_OF_LONG_ROWS = "limit of long rows"  # the method


def z_score(difference: float, error: float) -> float:
    """Return a difference in units of its standard error; without an error it is 0 or ±∞."""
    if difference == 0:
        return 0.0
    return difference / error if error > 0 else math.copysign(math.inf, difference)


class _Result:
    """The base of results: S if it is of S, a line, an HTML table and a frame."""

    quantity: str
    value: Any
    log_value: Any
    method: str
    error_kind: Any
    assumed: str

    @property
    def _place(self) -> str:
        """What was assumed of the row, after its value: " at β = 0"."""
        return f" at {self.assumed}" if self.assumed else ""

    def columns(self) -> dict[str, Any]:
        """Return its numbers by name."""
        raise NotImplementedError

    def to_dataframe(self) -> pandas.DataFrame:
        """Return its numbers as a pandas frame, one row each."""
        return data_frame(self.columns())

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        columns = self.columns()
        return html_table(
            [*columns], rows_of(columns), f"{self.quantity}{self._place}: {self.method}"
        )

    def __float__(self) -> float:
        """Return the value, if it is one number."""
        if np.size(self.value) != 1:
            raise WrongType(f"{np.size(self.value)} values of {self.quantity}: read .value")
        return float(np.ravel(self.value)[0])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the values as NumPy's array, for `np.asarray`."""
        return np.array(self.value, dtype=dtype, copy=copy)

    def _only(self, name: str, value: Any) -> Any:
        """Return the value of a result of S; of any other the attribute does not exist."""
        # An AttributeError, so that `hasattr` and notebooks' completion see what is there.
        if self.quantity != "S":
            raise WrongAttribute(f"{name} is of S; this is {self.quantity}: read .value")
        return value

    @property
    def S(self) -> Any:
        """The value, if it is of S."""
        return self._only("S", self.value)

    @property
    def log_S(self) -> Any:
        """The log of the value, if it is of S."""
        return self._only("log_S", self.log_value)


PROVEN, ESTIMATED, STANDARD_ERROR = "proven", "estimated", "standard error"


class _Theory(_Result):
    """A result with a bound on its relative error, which `error_kind` says is proven or estimated.

    A proven bound is a sum of inequalities. An estimated one has the difference to a coarser rule
    in it, or an allowance: it is seldom exceeded, and nothing forbids it.
    """

    error_bound: Any

    def __post_init__(self) -> None:
        """Make floats, which NumPy's are too, of arrays of no dimension."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray) and value.ndim == 0:
                object.__setattr__(self, name, value[()])

    @property
    def error(self) -> Any:
        """The bound on the error of the value, in its unit."""
        return np.abs(self.value) * self.error_bound

    @property
    def error_in_words(self) -> str:
        """How far the relative error goes at most, or about: "relative error ≤ 1.0e-12"."""
        largest = f"{np.max(self.error_bound, initial=0.0):.1e}"
        if self.error_kind == PROVEN:
            return f"relative error ≤ {largest}"
        return f"relative error {largest}, estimated"


@dataclass(frozen=True, repr=False)
class Evaluation(_Theory):
    """S, or the limit of another quantity for long rows, by theory.

    Args:
        value: the quantity, a float where parameters are; may underflow to 0 where log_value does
            not.
        log_value: its logarithm, the number to trust at the extremes.
        method: the route that ran: "closed form", "quadrature", "summation", "limit form" or
            "limit of long rows".
        error_bound: on |Δ log value|, hence on the relative error; same shape.
        length: n of the rows whose moments were pooled; None where it does not matter.
        quantity: its name.
        assumed: what was left out of the call and has its default, "β = 0".
    """

    value: Any
    log_value: Any
    method: str
    error_bound: Any
    length: Any = None
    quantity: str = "S"
    assumed: str = field(default="", compare=False)

    def __repr__(self) -> str:
        value = f"{self.quantity} = {brief(self.value)}{self._place}"
        return f"Evaluation({value}, {self.method}, {self.error_in_words})"

    @property
    def error_kind(self) -> str:
        """Whether the bound is proven; of limits of long rows it is estimated."""
        # Of these some are derivatives, by central differences of two orders.
        return ESTIMATED if self.method == LIMIT_OF_LONG_ROWS else PROVEN

    def columns(self) -> dict[str, Any]:
        """Return the value, its logarithm and the bound; and the length, where it has one."""
        place = {} if self.length is None else {"length": self.length}
        numbers = {"log_value": self.log_value, "error_bound": self.error_bound}
        return place | {self.quantity: self.value} | numbers

    @classmethod
    def from_log(cls, log_S: Any, method: str, error_bound: Any, length: Any = None) -> Evaluation:
        """Assemble from log S; S ≤ 1 holds exactly, as it must."""
        # S ≤ 1 by Cauchy–Schwarz; rounding may leave log S at 1e−17. It is moved
        # towards the truth, so that the bound holds as before.
        log_S = np.asarray(log_S, dtype=np.float64)
        if log_S.max(initial=0.0) > 0:
            log_S = np.minimum(log_S, 0.0)
        bound = np.broadcast_to(np.asarray(error_bound, dtype=np.float64), log_S.shape)
        return cls(np.exp(log_S), log_S, method, bound, length)


@dataclass(frozen=True, repr=False)
class Exact(_Theory):
    """A quantity of rows of n tokens by the exact law.

    Args:
        quantity: its name.
        value: its mean over rows, in the shape of `length`: a float at one length.
        log_value: its logarithm.
        error_bound: on the relative error, estimated.
        method: the route that ran.
        length: n.
        p_nonzero: probability that a row is not all zero; the mean is over such rows.
        assumed: what was left out of the call and has its default, "β = 0".
    """

    quantity: str
    value: Any
    log_value: Any
    error_bound: Any
    method: str
    length: Any
    p_nonzero: Any
    assumed: str = field(default="", compare=False)

    error_kind: ClassVar[str] = ESTIMATED

    def __repr__(self) -> str:
        return (
            f"Exact({self.quantity} = {brief(self.value)}{self._place}, n = {brief(self.length)}, "
            f"{self.method}, {self.error_in_words})"
        )

    def columns(self) -> dict[str, Any]:
        """Return length, value, bound, and the chance of a row that is not all zero."""
        numbers = {"error_bound": self.error_bound, "p_nonzero": self.p_nonzero}
        return {"length": self.length, self.quantity: self.value} | numbers

    @property
    def S_rms(self) -> Any:
        """√(n_eff/n) of an n_eff, which tends to S as n → ∞."""
        if self.quantity != "n_eff":
            raise WrongAttribute(f"S_rms is √(n_eff/n); this is {self.quantity}")
        return np.sqrt(self.value / self.length)


@dataclass(frozen=True, repr=False)
class Estimate(_Result):
    """A sampled quantity, with everything needed to judge it.

    Args:
        value: the estimate; may underflow to 0 where log_value does not.
        log_value: its logarithm.
        rel_stderr: standard error of its logarithm, i.e. its relative standard error.
        stderr: its standard error.
        ci95: its 95 % confidence interval, for this number of samples.
        anytime95: a wider one that stays valid whenever the sampling is stopped.
        samples: keys (or rows) drawn.
        ess: effective sample size of the worse of the two moments.
        dof: degrees of freedom of the standard error (independent batches − 1).
        tail_index: index ξ of the tail of the weighted draws; their variance is finite for ξ < ½.
        method: the sampler that ran.
        dtype: the arithmetic it ran in.
        device: where it ran.
        stopped: why it ended: "target reached", "sample budget", "interrupted", "limit of float32"
            or of float64, which the rounding of the draws is, or "no finite estimate".
        seconds: wall time, compilation included; of a curve's draws made together, its share.
        seed: the seed; on the same machine and devices it gives the same bits again.
        warning: why the error bar cannot be trusted, or None.
        error_kind: what `stderr` is: a "standard error", or "estimated", where rounding, or
            features that no draw may have hit, outweigh the scatter; its intervals cover more often
            than they say, unless a feature finer than about 1/2000 of the range outweighs all the
            rest.
        quantity: the name of what was estimated.
        length: n of the rows; None for long rows.
        assumed: what was left out of the call and has its default, "β = 0".
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
    error_kind: str = STANDARD_ERROR
    quantity: str = "S"
    length: int | None = None
    assumed: str = field(default="", compare=False)

    @property
    def error(self) -> float:
        """The standard error, or where `error_kind` says so an estimated bound."""
        return self.stderr

    def __repr__(self) -> str:
        (low, high), n = self.ci95, "" if self.length is None else f", n = {self.length}"
        doubt = "" if self.warning is None else f", warning: {self.warning}"
        return (
            f"Estimate({self.quantity} = {self.value:.8g} ± {self.stderr:.2g}{self._place}, "
            f"95 % [{low:.8g}, {high:.8g}]{n}, {self.samples:,} samples, {self.method}, "
            f"seed {self.seed}{doubt})"
        )

    def columns(self) -> dict[str, Any]:
        """Return every field, in one row; the intervals by their ends."""
        record = asdict(self)
        ends = {}
        for name in ("ci95", "anytime95"):
            ends |= dict(zip((f"{name}_low", f"{name}_high"), record.pop(name), strict=True))
        return (
            {self.quantity: record.pop("value"), "stderr": record.pop("stderr")}
            | ends
            | {name: value for name, value in record.items() if name not in ("quantity", "assumed")}
        )

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows: the value, its interval, how it was drawn."""
        low, high = self.ci95
        head = [self.quantity, "standard error", "95 % interval", "samples", "seed", "method"]
        row = [self.value, self.stderr, f"[{low:.6g}, {high:.6g}]", self.samples]
        n = "long rows" if self.length is None else f"rows of {self.length} tokens"
        doubt = "" if self.warning is None else f"; warning: {self.warning}"
        caption = f"{self.quantity}{self._place} of {n}, stopped: {self.stopped}{doubt}"
        return html_table(head, [[*row, self.seed, self.method]], caption)

    def beside(self, theory: Evaluation | Exact) -> Comparison:
        """Return the estimate beside the theory of the same quantity.

        Args:
            theory: one value, from `evaluate` or `exact`.

        Raises:
            InputError: of another quantity or length, or of several values. A limit that has no
                length is taken beside any.
        """
        fix = f"give one value of {self.quantity}, from exact or evaluate"
        if not isinstance(theory, _Theory):
            raise InputError("theory", theory, fix)
        if theory.quantity != self.quantity or np.size(theory.value) != 1:
            raise InputError("theory", f"{theory.quantity}: {brief(theory.value)}", fix)
        # Some limits carry the n over which moments were pooled; beside an estimate of long rows
        # such a limit is in place, an exact law of n tokens is not.
        if theory.length is not None:
            n = int(np.ravel(theory.length)[0])
            if n != self.length and (self.length is not None or isinstance(theory, Exact)):
                rows = "long rows" if self.length is None else f"rows of {self.length}"
                raise InputError("theory", f"n = {n}", f"this estimate is of {rows}; give the same")
        return Comparison(self, theory)

    @property
    def trusted(self) -> bool:
        """Whether the error bar may be believed."""
        return self.warning is None


@dataclass(frozen=True)
class Comparison:
    """An estimate and the theory of the same quantity.

    Args:
        estimate: by sampling.
        theory: one value.
    """

    estimate: Estimate
    theory: Evaluation | Exact

    @property
    def z(self) -> float:
        """Standard errors of the logarithm, or of a value of 0, that it lies above theory."""
        if not self.estimate.value:
            return z_score(-float(self.theory), self.estimate.stderr)
        # In logs, where values that underflow still differ. The bound of theory joins as if it were
        # one more standard error: without it, a rounding error beside a tiny stderr would be
        # significant.
        bound = float(np.ravel(self.theory.error_bound)[0])
        off = self.estimate.log_value - float(np.ravel(self.theory.log_value)[0])
        return z_score(off, math.hypot(self.estimate.rel_stderr, bound))

    def to_dataframe(self) -> pandas.DataFrame:
        """Return one row: both values, the interval and z."""
        low, high = self.estimate.ci95
        predicted = {"quantity": self.estimate.quantity, "theory": float(self.theory)}
        drawn = {"estimate": self.estimate.value, "stderr": self.estimate.stderr}
        return data_frame(predicted | drawn | {"ci95_low": low, "ci95_high": high, "z": self.z})

    def __repr__(self) -> str:
        return f"z = {self.z:+.2f}: {self.estimate!r} beside {self.theory!r}"

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        low, high = self.estimate.ci95
        head = ["quantity", "theory", "estimate", "95 % interval", "z"]
        interval, z = f"[{low:.6g}, {high:.6g}]", f"{self.z:+.2f}"
        row = [self.estimate.quantity, float(self.theory), self.estimate.value, interval, z]
        return html_table(head, [row], f"{self.theory.method}, Monte Carlo")
