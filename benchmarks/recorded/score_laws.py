"""References of limits: log S of scores, features and positions, and other quantities of long rows.

Log S of a function of a score is `campaign.reference`, integrals of the definition in balls. The
others are sums and Gaussian integrals, in mpmath at 60 digits.
"""

from __future__ import annotations

import functools
from typing import Any

import mpmath
import sympy
from flint import arb, ctx
from mpmath import mp, mpf

from benchmarks.campaign.blocks import s
from benchmarks.campaign.limits import DEADLINE, NoReference
from benchmarks.campaign.reference import FIRST_BITS, LAST_BITS, RADIUS, log_mean, log_s
from benchmarks.campaign.tree import convert

DIGITS = 60
SHOWN = 34
_SECONDS = 20.0  # that a reference in balls may take

# The kernels, written anew.
WEIGHTS: dict[str, Any] = {
    "exp": sympy.exp(s),
    "relu2": sympy.Max(s, 0) ** 2,
    "identity": s,
    "abs": sympy.Abs(s),
    "relu": sympy.Max(s, 0),
    "relu3": sympy.Max(s, 0) ** 3,
    "power2": s**2,
    "power4": s**4,
    "cosh": sympy.cosh(s),
    "taylor2": 1 + s + s**2 / 2,
    "taylor4": 1 + s + s**2 / 2 + s**3 / 6 + s**4 / 24,
    "threshold": sympy.Piecewise((sympy.exp(s), s > 0), (0, True)),
    "softpick": sympy.Max(sympy.exp(s) - 1, 0),
    "softplus": sympy.log(1 + sympy.exp(s)),
    "sigmoid": 1 / (1 + sympy.exp(-s)),
    "elu+1": sympy.Piecewise((s + 1, s > 0), (sympy.exp(s), True)),
    "elu": sympy.Piecewise((s, s > 0), (sympy.exp(s) - 1, True)),
    "gelu": s * (1 + sympy.erf(s / sympy.sqrt(2))) / 2,
    "silu": s / (1 + sympy.exp(-s)),
}


def shown(value: Any) -> str:
    """Return a number in decimal."""
    return str(mpmath.nstr(value, SHOWN, strip_zeros=False, min_fixed=-3, max_fixed=SHOWN))


def log_sparsity(kernel: str, beta: float, gamma: float) -> str:
    """Return log S of a function of a score; "" where it is not found.

    Raises:
        What `log_s` raises of integrals that are infinite.
    """
    return log_s(WEIGHTS[kernel], beta, gamma).log_S or ""


def decayed(decay: float, length: float) -> Any:
    """Return log S of λ^(n−j): two geometric sums."""
    with mp.workdps(400 if decay < 0.999 else 120):
        rate, n = mpf(decay), int(length)
        if rate == 1:
            return mpf(0)
        l1, l2 = ((1 - rate ** (p * n)) / (1 - rate**p) for p in (1, 2))
        return mpmath.log(l1) - mpmath.log(n * l2) / 2


def transform(
    kernel: str, beta: float, gamma: float, power: int, order: float | None, u: float
) -> str:
    """Return E[1 − e^(−x)], or with an order E[x^order e^(−x)], x = e^u |f|^power, in balls."""
    with mp.workdps(DIGITS):
        scale = sympy.Float(mpmath.exp(mpf(u)), DIGITS)
        rise = 1 if order is None else sympy.Float(mpmath.exp(mpf(u) * mpf(order)), DIGITS)
    size = sympy.Abs(WEIGHTS[kernel])
    x = scale * size**power
    body = 1 - sympy.exp(-x) if order is None else rise * size ** int(power * order) * sympy.exp(-x)
    tree, bits = convert(body), FIRST_BITS
    DEADLINE.set(_SECONDS)
    while bits <= LAST_BITS:
        with ctx.workprec(bits):
            found = log_mean(tree, 1, beta, gamma, None)[0].exp()
            if found.is_finite() and found.rad() < abs(found.mid()) * RADIUS:
                return arb(found.mid()).str(SHOWN, radius=False)
        bits *= 2
    raise NoReference(f"no convergence of {kernel}")


def of_decayed(decay: float, length: int, of: str) -> Any:
    """Return S, n_eff or the participation ratio of the row λ^(n−j), in which nothing is random."""
    log_S = decayed(decay, length)
    with mp.workdps(DIGITS):
        power, size = {"S": (1, 0), "n_eff": (2, 1), "participation": (-2, -1)}[of]
        return mpmath.exp(power * log_S) * mpf(length) ** size


def alibi(slope: float, gamma: float, length: int) -> Any:
    """Return log S of scores N(0, γ²) that fall by a slope per token: decay beside softmax."""
    with mp.workdps(2 * DIGITS):
        rate = mpmath.exp(-mpf(slope))
        l1, l2 = (mpmath.expm1(-p * length * mpf(slope)) / (rate**p - 1) for p in (1, 2))
        return mpmath.log(l1) - mpmath.log(length * l2) / 2 - mpf(gamma) ** 2 / 2


@functools.lru_cache(maxsize=256)
def _norms(query: str, dim: int) -> tuple[Any, Any]:
    """Return Σq and Σq² of a query family."""
    if query == "one-hot":
        return mpf(1), mpf(1)
    if query == "uniform":
        return mpf(dim), mpf(dim)
    # half-normal: the quantiles of |N(0, 1)| at the mid-points (m + ½)/d
    with mp.workdps(DIGITS):
        at = [mpmath.erfinv(mpf(2 * m + 1) / (2 * dim)) for m in range(dim)]
        return mpmath.fsum(at) * mpmath.sqrt(2), 2 * mpmath.fsum(x * x for x in at)


def nonnegative(ratio: float, dim: int, query: str) -> Any:
    """Return log S of Σq_i k_i with i.i.d. features: mean μΣq, variance σ²Σq²."""
    with mp.workdps(DIGITS):
        first, second = _norms(query, int(dim))
        return -mpmath.log1p(mpf(ratio) ** 2 * second / first**2) / 2


def _phi(x: Any) -> Any:
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def of_softmax(of: str, gamma: float, length: int) -> Any:
    """Return the limit of a quantity of long rows of e^s, s ~ N(β, γ²): Gaussian integrals."""
    name, _, number = of.partition(":")
    own = [mpf(float(x)) for x in number.split(",")] if number else []  # as the library reads it
    with mp.workdps(DIGITS):
        g, n = mpf(gamma), mpf(length)
        if name == "n_eff":
            return n * mpmath.exp(-g * g)
        if name == "participation":
            return mpmath.exp(g * g) / n
        if name == "entropy":
            return mpmath.log(n) - g * g / 2
        if name == "hoyer":  # (√n − √n S)/(√n − 1)
            return -mpmath.expm1(-g * g / 2) / (1 - 1 / mpmath.sqrt(n))
        if name == "overlap":
            return mpmath.exp(own[0] * g * g) / n
        if name == "top_k_overlap":  # P(Z > z, Z′ > z)/q
            q, rest = own[0] / n, mpmath.sqrt(1 - own[1] ** 2)
            z = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * q)
            cuts = [z + i for i in (0, 1, 2, 4, 8, 16)]
            return mpmath.quad(lambda x: mpmath.npdf(x) * _phi((own[1] * x - z) / rest), cuts) / q
        assert name == "power_sum"
        (a,) = own
        return n ** (1 - a) * mpmath.exp((a * a - a) * g * g / 2)


def of_sums(of: str, beta: float, gamma: float, length: int) -> Any:
    """Return the mean of Σ|a| or Σa² of n weights e^s, s ~ N(β, γ²)."""
    with mp.workdps(DIGITS):
        p = {"abs_sum": 1, "square_sum": 2}[of]
        return length * mpmath.exp(p * mpf(beta) + (p * mpf(gamma)) ** 2 / 2)


def of_one_fixed(of: str, gamma: float, length: int, place: float) -> Any:
    """Return the limit of the share of one token of score b beside n − 1 of e^s, or of a²."""
    with mp.workdps(DIGITS):
        power = 2 if of == "needle_signal" else 1
        own = mpmath.exp(power * mpf(place))
        return own / (own + (length - 1) * mpmath.exp((power * mpf(gamma)) ** 2 / 2))


def differential(gamma: float, gamma2: float, rho: float, mix: float) -> Any:
    """Return log S of e^(s₁ − γ₁²/2) − λe^(s₂ − γ₂²/2): E|a| as an option's price."""
    with mp.workdps(DIGITS):
        a, b, r, m = map(mpf, (gamma, gamma2, rho, mix))
        sigma = mpmath.sqrt(a * a + b * b - 2 * r * a * b)
        d = sigma / 2 - mpmath.log(m) / sigma
        first = 2 * (_phi(d) - m * _phi(d - sigma)) - (1 - m)
        e = mpmath.exp
        second = e(a * a) + m * m * e(b * b) - 2 * m * e(r * a * b)
        return mpmath.log(first) - mpmath.log(second) / 2


def gate_moment(gate: float, spread: float, power: int) -> Any:
    """Return E g^power of a gate g = σ(b + cε), by the trapezoidal rule."""
    b, c = mpf(gate), mpf(spread)
    if c == 0:
        return (1 / (1 + mpmath.exp(-b))) ** power
    step = min(mpf("0.4"), mpf("0.24") / c)  # the poles of σ lie π/c beside the axis
    reach = int(13 / step)
    terms = (
        mpmath.exp(-((i * step) ** 2) / 2) / (1 + mpmath.exp(-b - c * i * step)) ** power
        for i in range(-reach, reach + 1)
    )
    return mpmath.fsum(terms) * step / mpmath.sqrt(2 * mp.pi)


def forgetting(gamma: float, gate: float, gate_spread: float, length: int) -> Any:
    """Return log S of e^s Π g over n positions: geometric sums of the moments of a gate."""
    with mp.workdps(DIGITS):
        one, two = (gate_moment(gate, gate_spread, p) for p in (1, 2))
        l1, l2 = ((1 - x**length) / (1 - x) for x in (one, two))
        return mpmath.log(l1) - mpmath.log(length * l2) / 2 - mpf(gamma) ** 2 / 2


def performer(gamma: float, sigma: float, features: int, dim: int) -> Any:
    """Return log S of a Performer: E|a| = e^(γ²/2), and E a² by whether two features are one."""
    with mp.workdps(DIGITS):
        g2, v = mpf(gamma) ** 2, mpf(sigma) ** 2
        same = mpmath.exp(g2 / v + 8 * g2 / (1 - 2 * v)) * (1 - 2 * v) ** (-mpf(dim) / 2)
        second = (1 - 1 / mpf(features)) * mpmath.exp(2 * g2) + same / features
        return g2 / 2 - mpmath.log(second) / 2
