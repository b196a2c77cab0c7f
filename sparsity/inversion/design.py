"""The design tool: which parameter gives the wanted effective number of tokens in a row of n.

Inverts the exact law of finite rows; a kernel that cannot get there says so, with its reach.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from sparsity import kernels
from sparsity.errors import InputError
from sparsity.finite.regimes import condensed_share
from sparsity.inversion.levers import Lever, Reach, exact, invert, lever
from sparsity.kernels import Kernel, decayed, exp, identity, relu2
from sparsity.kernels.parameters import BETA, GAMMA, LENGTH

__all__ = ["LENGTHS", "Design", "Impossible", "Requirement", "design"]

LENGTHS = (64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_000_000)
_LONGEST = 1e12  # to which the exact law is resolved


class Impossible(InputError):
    """The wanted n_eff is out of the kernel's reach; says what the reach is and what sets it."""

    def __init__(self, kernel: Kernel, length: float, tokens: float, reach: Reach) -> None:
        self.kernel, self.length, self.reach = kernel, length, reach
        fix = (
            f"impossible for {kernel.name} ({kernel.title}) in a row of {length:.0f} tokens, "
            f"which can attend to {reach} of them: {reach.reason}"
        )
        super().__init__("n_eff", f"{tokens:.10g}", fix)


@dataclass(frozen=True)
class Requirement:
    """What one length requires.

    Args:
        length: n.
        value: the parameter; None where the wanted n_eff is out of reach.
        low: the fewest tokens that the kernel can attend to at this length.
        high: the most.
    """

    length: int
    value: float | None
    low: float
    high: float


@dataclass(frozen=True)
class Design:
    """The parameter that gives the wanted focus, and how it must grow.

    Args:
        kernel: the kernel's name.
        length: n.
        wanted: the effective number of tokens asked for.
        parameter: what was free: "gamma", "beta", "decay", or "scale" (s in γ = γ₀·s·ln n).
        value: what it must be.
        parameters: the kernel's parameters, as `eval` takes them.
        n_eff: the exact law at these parameters.
        error_bound: bound on its relative error.
        p_nonzero: probability that a row is not all zero; n_eff is given that it is not.
        reach: all that the kernel can attend to at this length.
        requirements: the parameter at other lengths, for the same n_eff.
        growth: how it grows with n, in words.
    """

    kernel: str
    length: int
    wanted: float
    parameter: str
    value: float
    parameters: dict[str, float]
    n_eff: float
    error_bound: float
    p_nonzero: float
    reach: Reach
    requirements: tuple[Requirement, ...]
    growth: str

    def summary(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    def text(self) -> str:
        """For people: the answer and its check, then the requirement against length."""
        given = ", ".join(f"{name} = {value!r}" for name, value in self.parameters.items())
        lines = [
            f"{self.kernel}: n_eff = {self.wanted:.10g} of n = {self.length} tokens needs "
            f"{self.parameter} = {self.value:.12g}",
            f"check    n_eff = {self.n_eff:.12g} ± {self.error_bound:.0e} at {given}",
            f"reach    {self.reach}: {self.reach.reason}",
        ]
        if self.p_nonzero < 0.9995:
            lines.append(f"nonzero  only {self.p_nonzero:.4g} of the rows; n_eff is of those")
        lines += ["", f"{'n':>9}  {self.parameter}"]
        for row in self.requirements:
            short = f"impossible: n_eff ≥ {row.low:.6g}"
            if row.high <= self.wanted:
                short = f"impossible: n_eff ≤ {row.high:.6g}"
            lines.append(f"{row.length:>9}  {short if row.value is None else f'{row.value:.8g}'}")
        return "\n".join([*lines, "", self.growth])


def _solve(kernel: Kernel, length: float, wanted: float, free: Lever, start: float) -> float:
    """The coordinate at which the lever gives the wanted n_eff."""

    def excess(x: float) -> float:
        return math.log(exact(kernel, length, free.parameters(x))[0] / wanted)

    found = invert(excess, free.ends, start)
    if found is None:
        here = min(max(start, free.ends[0]), free.ends[1])
        end = free.value(free.ends[excess(here) < 0])
        fix = f"needs {free.free} beyond {end:.3g}, where the law is not computed; "
        raise InputError("n_eff", wanted, f"{fix}keep off the ends of {free.reach}")
    return found


def _growth(
    kernel: Kernel, n: float, wanted: float, given: dict[str, float], found: dict[str, float]
) -> str:
    """How the requirement grows with n at fixed n_eff, as n → ∞."""
    if kernel is exp:
        limit = 1 / condensed_share(wanted)
        how = f"In the end γ grows like √(ln n) only: γ/√(2 ln n) → {limit:.4g}, slowly"
        if "gamma" in given:
            return f"{how}; so the scale s of γ = γ₀·s·ln n must fall like 1/√(ln n)."
        return f"{how}; γ ∝ ln n then focuses ever longer rows ever more."
    if kernel is decayed:
        return (
            "λ does not depend on n once n ≫ n_eff: λ → (n_eff − 1)/(n_eff + 1) = "
            f"{(wanted - 1) / (wanted + 1):.8g}, a window behind the query whatever the keys say."
        )
    if kernel is identity:
        return (
            "No bias and no spread holds n_eff in longer rows: the floor grows like 2n/π, past "
            f"{wanted:.6g} at n ≈ {math.pi * wanted / 2:.4g}."
        )
    z = found["beta"] / found["gamma"]
    if given.get("beta", -1.0) >= 0:
        return (
            "Without a negative bias nothing holds n_eff in longer rows: the floor grows like "
            f"n/6, past {wanted:.6g} at n ≈ {6 * wanted:.4g}."
        )
    fall = "γ must fall like |β|/√(2 ln n)" if "beta" in given else "β/γ must fall like −√(2 ln n)"
    return (
        f"In the end {fall}, so that n·Φ(β/γ), the number of positive scores (here "
        f"{n * ndtr(z):.4g}), tends to a constant."
    )


def _tokens(wanted: Any, length: float) -> float:
    try:
        tokens = float(np.asarray(wanted, dtype=np.float64)[()])
    except (TypeError, ValueError):
        raise InputError("n_eff", wanted, "give a number of tokens") from None
    if not 1 <= tokens <= length:
        fix = f"a row of {length:.0f} tokens attends to at least 1 and at most {length:.0f} of them"
        raise InputError("n_eff", wanted, fix)
    return tokens


def _one_length(value: Any) -> float:
    n = LENGTH.check(value)
    if n.ndim or not 2 <= n <= _LONGEST:
        raise InputError("length", value, "give one row length from 2 to 1e12")
    return float(n)


def _options(kernel: Kernel, options: dict[str, Any]) -> dict[str, float]:
    """The given options of the law, checked."""
    takes = {} if kernel is decayed else {"beta": BETA, "gamma": GAMMA}
    given = {}
    for name, value in options.items():
        if name not in takes:
            has = f"takes {' and '.join(takes)}" if takes else "has no other option: decay is free"
            raise InputError(name, value, f"design for {kernel.name} {has}")
        checked = takes[name].check(value)
        if np.ndim(checked):
            raise InputError(name, value, "give one number")
        given[name] = float(checked)
    if kernel in (relu2, identity) and len(given) == 2:
        raise InputError("gamma", options["gamma"], "with beta nothing is free; leave one out")
    return given


def design(
    kernel: str | Kernel = "exp",
    *,
    length: int,
    n_eff: float,
    lengths: Sequence[int] = LENGTHS,
    **options: float,
) -> Design:
    """The parameter at which a row of `length` tokens attends to `n_eff` of them, on average.

    Solves E[(Σ|a|)²/Σa²] = n_eff by the exact law of finite rows, for
    exp: γ, or, with γ₀ = `gamma` given, the scale s of log-n scaling, γ = γ₀·s·ln n;
    relu2 and identity: β at `gamma` (default 1), or γ at `beta`; decayed: λ.

    Args:
        kernel: "exp", "relu2", "identity" or "decayed".
        length: row length n, from 2 to 10¹².
        n_eff: the wanted effective number of tokens, in [1, n].
        lengths: the other lengths for which the requirement is given.
        **options: `beta` (real) and `gamma` (> 0), as above.

    Returns:
        The parameter, its check, the reach at this length, and the requirement against n.

    Raises:
        Impossible: n_eff is out of the kernel's reach; names the floor or ceiling.
        InputError: a bad value, or a kernel that has no exact law at finite n.
    """
    record = kernels.named(kernel)
    if record not in (exp, relu2, identity, decayed):
        fix = "design inverts the exact law of rows of exp, relu2, identity and decayed"
        if record is kernels.nonnegative:
            fix += "; features have no given law here (in long rows S = √(n_eff/n) ≥ 1/√(1+ratio²))"
        raise InputError("kernel", record.name, fix)
    n, given = _one_length(length), _options(record, options)
    wanted, others = _tokens(n_eff, n), [_one_length(other) for other in lengths]
    free = lever(record, n, wanted, given)
    if wanted not in free.reach:
        raise Impossible(record, n, wanted, free.reach)
    x = _solve(record, n, wanted, free, free.start)
    found = free.parameters(x)
    tokens, bound, nonzero = exact(record, n, found)
    rows, shift = [], x - free.start
    for other in others:
        there = lever(record, other, wanted, given)
        value = None
        if wanted in there.reach:
            near = _solve(record, other, wanted, there, there.start + shift)
            value, shift = there.value(near), near - there.start
        rows.append(Requirement(int(other), value, there.reach.low, there.reach.high))
    return Design(
        kernel=record.name,
        length=int(n),
        wanted=wanted,
        parameter="scale" if record is exp and "gamma" in given else free.free,
        value=free.value(x),
        parameters=found,
        n_eff=tokens,
        error_bound=bound,
        p_nonzero=nonzero,
        reach=free.reach,
        requirements=tuple(rows),
        growth=_growth(record, n, wanted, given, found),
    )
