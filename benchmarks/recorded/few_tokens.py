"""References of rows of a few tokens from the definition itself, in mpmath at 50 digits.

Two weights depend on the difference of two scores: one integral. Chances of sinks and needles,
ranks, and maps of whole rows are known so; three ordered scores, and the two largest of n, are
double integrals.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import mpmath
from flint import arb, ctx
from mpmath import mp, mpf

DIGITS = 50
_STEP = mpf("0.05")  # of t, d = e^(t − e^(−t)): the rule of integrals over d > 0


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


def _phi(x: Any) -> Any:
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def value(of: str, p: Sequence[Any], total: Any = 1, n: int = 0) -> Any:
    """Return a quantity of the weights that are not 0 in a row of n.

    Args:
        of: the quantity, with its number after a colon.
        p: the weights.
        total: what they are shares of, their sum or more.
        n: 0 for no more tokens than weights.
    """
    name, _, number = of.partition(":")
    own = [mpf(x) for x in number.split(",")] if number else []
    n, l1 = n or len(p), mpmath.fsum(abs(x) for x in p)
    l2 = mpmath.fsum(x * x for x in p)
    if name == "entropy":
        return -mpmath.fsum(x / total * mpmath.log(x / total) for x in p if x)
    if name == "varentropy":
        logs = [(x / l1, mpmath.log(x / l1)) for x in p if x]
        mean = mpmath.fsum(share * log for share, log in logs)
        return mpmath.fsum(share * (log - mean) ** 2 for share, log in logs)
    if name == "gini":
        pairs = mpmath.fsum(abs(x - y) for x in p for y in p)
        return pairs / (2 * n * l1)
    if name == "hoyer":
        return (mpmath.sqrt(n) - l1 / mpmath.sqrt(l2)) / (mpmath.sqrt(n) - 1)
    if name == "power_sum":
        return mpmath.fsum((x / total) ** own[0] for x in p if x)
    if name == "top_k_mass":
        return mpmath.fsum(sorted(p)[-int(own[0]) :]) / total
    simple: dict[str, Any] = {
        "S": lambda: l1 / mpmath.sqrt(n * l2),
        "n_eff": lambda: l1 * l1 / l2,
        "participation": lambda: l2 / total**2,
        "max_weight": lambda: max(p) / total,
        "support": lambda: mpf(sum(x > 0 for x in p)),
        "square_sum": lambda: l2 / total**2,
        "abs_sum": lambda: l1 / total,
    }
    return simple[name]()


def _larger(family: str, order: Any, d: Any) -> Any:
    """Return the larger weight of two tokens whose scores are d > 0 apart."""
    if family in ("exp", "topk"):
        return _sigmoid(d)
    delta = (order - 1) * d
    if delta >= 1:
        return mpf(1)
    # b^r + (b + δ)^r = 1 with r = 1/(α − 1), by Newton's method, which for r < 1 leaves b ≥ 0.
    if order > 2:
        raise NotImplementedError(f"order {order}; of order 3 the larger weight is (1 + δ)/2")
    r, b = 1 / (order - 1), (1 - delta) / 2
    for _ in range(80):
        gap = b**r + (b + delta) ** r - 1
        step = gap / (r * (b ** (r - 1) + (b + delta) ** (r - 1)))
        b -= step
        if abs(step) < mpf(10) ** (-DIGITS + 2):
            break
    return 1 - b**r


def below_of_two(gamma: float, of: str, within: float = 0.0) -> Any:
    """Return the share of two keys, or of the weight, that is below the larger one times λ."""
    name, _, numbers = of.partition(":")
    with mp.workdps(DIGITS):
        # Their scores are d apart, N(0, 2γ²(1 − c)), and the smaller weight is 1/(1 + e^|d|).
        spread = mpmath.sqrt(2 * (1 - mpf(within))) * mpf(gamma)
        least = -mpf(numbers.split(",")[0])
        if "mass" not in name:
            return mpmath.ncdf(-least / spread)
        ends = [least, *(least + spread * k for k in (1, 3, 8, 20))]
        return 2 * mpmath.quad(lambda d: mpmath.npdf(d, 0, spread) * _sigmoid(-d), ends)


def of_two(kernel: str, gamma: float, of: str) -> Any:
    """Return the mean over rows of two tokens of softmax, or of a map with a threshold."""
    family, _, number = kernel.partition(":")
    with mp.workdps(DIGITS):
        named = {"sparsemax": "2", "entmax1.5": "1.5", "exp": "1", "topk": "1"}
        order = mpf(number if family == "entmax" else named[family])
        spread = mpmath.sqrt(2) * mpf(gamma)
        smooth = family in ("exp", "topk")
        end = min(16 * spread, 130) if smooth else 1 / (order - 1)
        one_hot, apart = value(of, [mpf(1), mpf(0)]), min(end, 16 * spread)

        def body(d: Any) -> Any:
            p = _larger(family, order, d)
            found = value(of, [p, (1 - p) if not smooth else _sigmoid(-d)])
            return 2 * (found - one_hot) * mpmath.npdf(d, 0, spread)

        cuts = mpmath.linspace(0, apart, 1 + max(2, int(apart / 2), int(4 * apart / spread)))
        return one_hot + mpmath.quad(body, cuts)


def fewest_of_two(gamma: float, share: float) -> Any:
    """Return the mean of the fewest keys of two of softmax that hold a share > ½ of the mass."""
    with mp.workdps(DIGITS):
        p = mpf(share)
        return 1 + mpmath.erf(mpmath.log(p / (1 - p)) / (2 * mpf(gamma)))  # both, if that near


def overlap_of_two(gamma: float, rho: float, keys: int) -> Any:
    """Return E Σ p p′ of two keys of softmax, 2 E pp′ of one; or the chance of one largest key."""
    with mp.workdps(DIGITS):
        r, c = mpf(rho), mpmath.sqrt(2) * mpf(gamma)
        if keys:
            return mpf(1) / 2 + mpmath.asin(r) / mp.pi
        rest, rule = mpmath.sqrt(1 - r * r), _trapezoid(min(mpf("0.25"), mpf("0.15") / c))
        return 2 * mpmath.fsum(
            share * _sigmoid(c * x) * weight * _sigmoid(c * (r * x + rest * y))
            for x, share in rule
            for y, weight in rule
        )


@functools.lru_cache(maxsize=2)
def _gauss(count: int) -> list[tuple[Any, Any]]:
    """Return the points and weights of Gauss's rule on (−1, 1)."""
    with ctx.workdps(DIGITS):
        rule = [arb.legendre_p_root(count, i, weight=True) for i in range(count)]
        shown = [[each.str(DIGITS, radius=False) for each in pair] for pair in rule]
    return [(mpf(x), mpf(weight)) for x, weight in shown]


def of_two_apart(slope: float, gamma: float, of: str) -> Any:
    """Return the mean over two softmax tokens whose scores differ by N(slope, 2γ²)."""
    with mp.workdps(DIGITS):
        m, c = mpf(slope), mpmath.sqrt(2) * mpf(gamma)
        rule = _trapezoid(min(mpf("0.3"), mpf("0.15") / c))
        return mpmath.fsum(
            share * value(of, [_sigmoid(m + c * z), _sigmoid(-m - c * z)]) for z, share in rule
        )


def of_two_collinear(query: Sequence[float], center: float, spread: float) -> Any:
    """Return n_eff of two tokens of scores |q|² cos(m)·max(τ, 0), m = 0 and 1.

    With τ ~ N(center, spread²) it is 1 + E[1/cosh d] of the difference d, by Gauss's rule on
    panels; τ < 0 is one atom.
    """
    with mp.workdps(DIGITS):
        size, c, w = mpmath.fsum(mpf(x) ** 2 for x in query), mpf(center), mpf(spread)
        start, end, width = max(mpf(0), c - 12 * w), c + 12 * w, min(w, 1 / size)
        count = int((end - start) / width) + 1
        half = (end - start) / (2 * count)
        points = [(mpf(0), _phi(-c / w))]
        for i in range(count):
            for x, weight in _gauss(24):
                t = start + half * (2 * i + 1 + x)
                points.append((t, half * weight * mpmath.npdf(t, c, w)))
        first, second = size, size * mpmath.cos(1)
        total = mpf(0)
        for t, share in points:
            total += share * mpmath.fsum(
                other * mpmath.sech(first * t - second * y) for y, other in points
            )
        return 1 + total


def of_half_lines(degree: int, both: bool, of: str) -> Any:
    """Return the mean over rows of two weights |s|^degree, β = 0, that are not both zero.

    Two scores have a uniform angle; weights are of both signs of s, or of s > 0 alone.
    """
    with mp.workdps(DIGITS):

        def body(angle: Any) -> Any:
            a = [mpmath.cos(angle) ** degree, mpmath.sin(angle) ** degree]
            return value(of, a, total=mpmath.fsum(a))

        found = mpmath.quad(body, [0, mp.pi / 4, mp.pi / 2]) * 2 / mp.pi
        return found if both else (found + 2 * value(of, [mpf(1), mpf(0)])) / 3


def _half_line(reach: Any) -> list[tuple[Any, Any]]:
    """Return points d of (0, reach) and weights; e^(−d²) is to have ended there."""
    points = []
    for i in range(int(-mpf(5) / _STEP), int((mpmath.log(reach) + 1) / _STEP)):
        t = i * _STEP
        d = mpmath.exp(t - mpmath.exp(-t))
        points.append((d, d * (1 + mpmath.exp(-t)) * _STEP))
    return points


def of_three(gamma: float, of: str) -> Any:
    """Return the mean over softmax rows of three tokens, by the two gaps between ordered scores."""
    with mp.workdps(DIGITS):
        g, total = mpf(gamma), mpf(0)
        for x, weight in _half_line(18):
            for y, other in _half_line(18):
                size = (x * x + x * y + y * y) / 3
                if size > 90:
                    continue
                a = [mpf(1), mpmath.exp(-g * x), mpmath.exp(-g * (x + y))]
                sums = mpmath.fsum(a)
                found = value(of, [each / sums for each in a])
                total += weight * other * found * mpmath.exp(-size)
        return 3 * total / (mp.pi * mpmath.sqrt(3))


def of_top_two(gamma: float, n: int, of: str) -> Any:
    """Return the mean over rows of n of which softmax reads the two largest scores.

    The density of their difference d, Σ_y Φ(y)^(n−2) φ(y) φ(y + d), is a polynomial in e^(−step·d).
    """
    with mp.workdps(DIGITS):
        # In long rows y, the second largest score, has a law as narrow as 1/√(2 ln n).
        g, total, step = mpf(gamma), mpf(0), mpf("0.15" if n < 10 else "0.02")
        rows = [i * step for i in range(int(-12 / step), int(12 / step))]
        # Φ^(n−2) is below e^(−140) at the others.
        rows = [y for y in rows if (n - 2) * math.erfc(y / math.sqrt(2)) < 280]
        below = [_phi(y) ** (n - 2) * mpmath.exp(-y * y) * step for y in rows]
        for d, weight in _half_line(24):
            scale = mpmath.exp(-d * d / 2 - rows[0] * d)
            density = scale * mpmath.polyval(below[::-1], mpmath.exp(-step * d))
            p = _sigmoid(g * d)
            total += weight * density * value(of, [p, _sigmoid(-g * d)], n=n)
        return n * (n - 1) * total / (2 * mp.pi)


def _trapezoid(step: Any) -> list[tuple[Any, Any]]:
    reach = int(14 / step)
    scale = step / mpmath.sqrt(2 * mp.pi)
    return [
        (i * step, scale * mpmath.exp(-((i * step) ** 2) / 2)) for i in range(-reach, reach + 1)
    ]


def router_of_two(gamma: float, rho: float, of: str) -> Any:
    """Return the captured mass, or the recall, of two keys of which a proxy chooses one."""
    with mp.workdps(DIGITS):
        r, spread = mpf(rho), mpmath.sqrt(2) * mpf(gamma)
        if of == "recall":
            return mpf(1) / 2 + mpmath.asin(r) / mp.pi
        if r == 1:
            return of_two("exp", gamma, "max_weight")
        slope = r / mpmath.sqrt(1 - r * r)
        rule = _trapezoid(min(mpf("0.2"), mpf("0.1") / mpf(gamma), mpf("0.3") / (slope + 1)))
        return mpmath.fsum(2 * share * _sigmoid(spread * z) * _phi(slope * z) for z, share in rule)


@functools.lru_cache(maxsize=8)
def _lags_of_pairs(gamma: float, rho: float, n: int) -> tuple[Any, list[Any]]:
    """Return a step of z and, for every lag, the chance that the two keys read are so far apart.

    They are those of the largest proxies. Given x, the largest proxy of the others, of density
    (n − 2) φ(x) Φ(x)^(n − 3), their scores γz are independent, each of a weight
    φ(z) Φ((ρz − x)/√(1 − ρ²)).
    """
    r = mpf(rho)
    rest = mpmath.sqrt(1 - r * r)
    step = min(mpf("0.2"), mpf("0.12") / mpf(gamma), mpf("0.2") * rest)
    rule = _trapezoid(step)
    found = [mpf(0)] * len(rule)
    for x, share in _trapezoid(mpf("0.05")):
        chance = share * _phi(x) ** (n - 3) * n * (n - 1) * (n - 2) / 2
        if chance < mpf(10) ** -40:
            continue
        own = [weight * _phi((r * z - x) / rest) for z, weight in rule]
        for lag in range(len(rule)):
            both = mpmath.fdot(own[lag:], own[: len(rule) - lag])
            found[lag] += (2 if lag else 1) * chance * both
    return step, found


def routed_pairs(gamma: float, rho: float, n: int, of: str) -> Any:
    """Return the mean over rows of n of which the two keys of the largest proxies are read."""
    with mp.workdps(DIGITS):
        step, chances = _lags_of_pairs(gamma, rho, n)
        total = mpf(0)
        for lag, chance in enumerate(chances):
            d = mpf(gamma) * lag * step
            total += chance * value(of, [_sigmoid(d), _sigmoid(-d)], n=n)
        return total


def outweighed(place: float, gamma: float, ratio: float, power: int, n: int) -> Any:
    """Return P(e^(pm) > x Σ e^(ps)) of a fixed score m beside one or two others N(0, γ²)."""
    with mp.workdps(DIGITS):
        g = mpf(gamma) * power
        log_c = power * mpf(place) - mpmath.log(mpf(ratio))
        if n == 2:
            return _phi(log_c / g)
        assert n == 3
        top = log_c / g

        def body(z: Any) -> Any:
            left = -mpmath.expm1(g * (z - top))
            return mpmath.npdf(z) * _phi(top + mpmath.log(left) / g) if left > 0 else mpf(0)

        return mpmath.quad(body, [top - 30, top - 10, top - 3, top - 1, top])


def needle_largest(place: float, gamma: float, n: int) -> Any:
    """Return P(no score of n − 1 others N(0, γ²) is above m)."""
    with mp.workdps(DIGITS):
        return _phi(mpf(place) / mpf(gamma)) ** (n - 1)


def recall_of_two_values(place: float, gamma: float) -> Any:
    """Return the recall of one of two values beside one other key: E Φ(e^(m − s))."""
    with mp.workdps(DIGITS):
        g, m = mpf(gamma), mpf(place)
        cuts = mpmath.linspace(-14, 14, 113)
        return mpmath.quad(lambda z: _phi(mpmath.exp(m - g * z)) * mpmath.npdf(z), cuts)
