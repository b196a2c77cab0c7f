"""The exact laws of differential rows, a = p⁽¹⁾ − λ p⁽²⁾: E Σa² and E Σ|a|.

E Σa² = E Σ(p⁽¹⁾)² + λ² E Σ(p⁽²⁾)² − 2λ E Σ p⁽¹⁾p⁽²⁾: the first two are the participation of softmax
rows. With X = te^x, Y = ue^y of a key of scores x, y, φ(t, u) = E e^(−X−Y) and 1/Z = ∫ e^(−tZ) dt
twice,

    E Σ p⁽¹⁾p⁽²⁾ = n ∫∫ E[XY e^(−X−Y)] φ^(n−1) d ln t d ln u.

E Σ|a| = 1 + λ − 2 E Σ min(p, λq), and min(p, r) is a Mellin integral over z = ½ + iη,

    E min(p, λq) = (1/2πi) ∫ dz λ^z/(z(1 − z)) E q^z p^(1−z).

With Z^(−z) Γ(z) = ∫ u^(z−1) e^(−uZ) du for both totals,

    E q^z p^(1−z) = (sin πz)/π ∫∫ E[X^(1−z) Y^z e^(−X−Y)] φ^(n−1) d ln t d ln u.

sin πz grows like e^(πη), which t and u cancel: less so, turned by e^(−iα) and e^(iα), which
leaves e^((π − 2α)η) of it. Means over both scores are products of matrices, one for each z, and all
lengths share them. Every rule is trapezoidal; |n E q^z p^(1−z)| ≤ 1 for 0 < Re z < 1, by Hölder.
The bound holds a rule of wider steps, and what the last η leaves.

In short rows the integrand over η falls slowly: rows of two or three tokens have a rule of their
own, E min(p, λq) for one key's p = σ(−U) and q = σ(−V), where U is ln Σ e^x of the other keys less
this key's x, V the same of the scores y. For λ ≥ 1 (else the maps change places)

    E min(p, λq) = ∫ P(p > t, λq > t) dt = ∫ σ'(w) P(U < w, V < v(w)) dw,  v = ln(λ − 1 + λe^w).

Of two tokens (U, V) is normal. Of three, U is a normal plus ln 2cosh(D/2), D = x₂ − x₃, which does
not depend on it: the chance is a mean over the two D of normal chances, each by Owen's T.
"""

from __future__ import annotations

import math

import numpy as np

from sparsity import kernels, quantities
from sparsity.errors import RESOLVED, InputError, TooFine
from sparsity.exact_law import engine, rules
from sparsity.rows.row import Row
from sparsity.special import expit, ndtr, owens_t

Spreads = tuple[float, float]  # γ₁ and γ₂ of the two scores

_ROUNDING = 1e-13  # of E Σa², over the two participations that it is made of
_TURN = 1.0  # α, below π/2: closer to it e^(−X) hardly falls
_RULES_OF_ABS = ((0.14, 0.14), (0.18, 0.16))  # steps of ln t and of η: of the value, of its bound
_DEPTH_OF_ABS = 46.0  # e-folds of t down to which √t counts
_FALL = 26.0  # e-folds down to which the integrand over η counts in long rows
_LEAST_END, _LAST_END = 12.0, 40.0  # of η: at least, for short rows, and at most
_COMPLEX = 4 * rules.EXPONENTIAL  # seconds of a complex number, measured
_COMPLEX_PRODUCT = rules.PRODUCT / 2  # of a complex multiplication in a product of large matrices
_BOTH_RULES = 1.5  # seconds of both rules together, in units of the finer one
_ALL_SMALL = 9.0  # standard deviations of one score, with n of which at once no row comes
_LARGE = 300.0  # ln of an X of which e^(−X) is nothing
_FAR_OF_PAIR = 8.5  # standard deviations of both D together that count
_EDGE = 45.0  # |w| beyond which σ' is nothing
_RULES_OF_SHORT = ((16, 0.15), (12, 0.2))  # points of a panel, step of D: of the value, its bound
_KINK = 4.0  # spread from which ln 2cosh turns within a step of D
_MOST_CHANCES = 8e6  # normal chances in all: seconds
_HELD = 2**16  # of them at once
_ALIKE = 0.99  # |ρ| beyond which the chance turns within a panel, and no bound holds
_TINY = 1e-150  # in place of 0, where it divides: its square is still in float64's range


def _widest(spreads: Spreads) -> tuple[str, float]:
    """Return the parameter of the wider of two spreads, and its value."""
    return max(zip(("gamma", "gamma2"), spreads, strict=True), key=lambda each: each[1])


class _NormalPair:
    """Points of a normal behind both of two correlated scores, and of what is the second's own.

    Attributes:
        own: the spread of the second score given the first.
        counts: how many points each of the two normals has, known before they are made.
    """

    def __init__(self, spreads: Spreads, rho: float, step: float) -> None:
        g1, g2 = spreads
        self.own = g2 * math.sqrt((1 - rho) * (1 + rho))
        self.steepness, self.step = (max(g1, abs(rho) * g2), self.own), step
        self.far = rules.FAR + g1 + g2  # a weight in front of the density moves it by its spread
        first, second = (
            1 + 2 * self.far / rules.normal_step(c, step) if c else 1 for c in self.steepness
        )
        self.counts = float(first), float(second)

    def points(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return points and weights of the first normal, and of the second."""
        first, second = (rules.normal_points(c, self.far, self.step) for c in self.steepness)
        return *first, *second


def _mean_product(spreads: Spreads, rho: float, n: np.ndarray, step: float) -> np.ndarray:
    """Return E Σ p⁽¹⁾p⁽²⁾ of rows of n ≥ 2, [lengths], by the rule of a step in ln t."""
    (g1, g2), most = spreads, float(n.max())
    behind = _NormalPair(spreads, rho, step)
    first, second = behind.counts
    along = [(rules.DEPTH + math.log(most) + 2 * rules.FAR * spread) / step for spread in spreads]
    numbers = second * along[1] + first * along[0] + along[0] * along[1]
    seconds = rules.EXPONENTIAL * (first * second * along[1] + along[0] * along[1] * len(n))
    # Products of large matrices are ten times as fast as of small ones.
    seconds += rules.PRODUCT / 10 * first * along[0] * along[1]
    rules.refuse_slow(*_widest(spreads), seconds, 2 * numbers)
    z, share, y, weight = behind.points()
    u1, u2 = (rules.log_times(spread, most, step) for spread in spreads)
    x = np.exp(np.minimum(u1[:, None] + g1 * z, 700.0))
    lost2, once2 = np.empty((len(z), len(u2))), np.empty((len(z), len(u2)))
    # Means over two normals as two matrix products: over the second's own part first, at each point
    # of what both share.
    for i, at in enumerate(rho * g2 * z):  # the second score, given the first
        of = np.exp(np.minimum(u2[:, None] + at + behind.own * y, 700.0))
        lost2[i], once2[i] = -np.expm1(-of) @ weight, (of * np.exp(-of)) @ weight
    kept = np.exp(-x) * share
    lost = (-np.expm1(-x) @ share)[:, None] + kept @ lost2  # 1 − φ, with its digits
    log_phi = np.log1p(-np.minimum(lost, 1 - 1e-16))
    both = (x * kept) @ once2
    return np.array([m * (both * np.exp((m - 1) * log_phi)).sum() for m in n]) * step**2


def square_sum(
    gamma: float, gamma2: float, rho: float, mix: float, length: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return E Σa² over rows of n, and a bound on its relative error.

    Args:
        gamma: spread γ₁ > 0 of the first scores.
        gamma2: spread γ₂ > 0 of the second.
        rho: their correlation, in [−1, 1].
        mix: λ ≥ 0.
        length: row lengths n ≥ 1, [lengths].

    Raises:
        TooFine: spreads at which the law takes more than seconds.
        InputError: maps that cancel to rounding.
    """
    n, spreads = np.asarray(length, dtype=np.float64), (gamma, gamma2)
    if mix == 0:
        softmax = engine.law(Row(kernels.exp, gamma=gamma), quantities.participation, n)
        return softmax[0], softmax[2]
    (first, second), _, (off, gap) = engine.laws(
        kernels.exp, np.zeros(2), np.array(spreads), quantities.participation, n
    )
    cross, error = np.ones(n.shape), np.zeros(n.shape)
    if (several := n > 1).any():
        steps = rules.STEP_OF_U, 2 * rules.STEP_OF_U
        fine, coarse = (_mean_product(spreads, rho, n[several], step) for step in steps)
        cross[several], error[several] = fine, np.abs(coarse / fine - 1)
    value = first + mix**2 * second - 2 * mix * cross
    size = first * off + mix**2 * second * gap + 2 * mix * cross * error
    size += _ROUNDING * (first + mix**2 * second)
    if not (size < RESOLVED * value).all():
        fix = "the two maps cancel to within the rounding of the law; use a mix that differs"
        raise InputError("mix", mix, fix)
    return value, size / value


def _mean_least(
    spreads: Spreads, rho: float, mix: float, n: np.ndarray, rule: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Return E Σ min(p, λq) of rows of n ≥ 2, and what may lie beyond the last η, [lengths]."""
    (g1, g2), (step, along), most = spreads, rule, float(n.max())
    top = min(rules.FAR, _ALL_SMALL / math.sqrt(float(n.min())))
    ranges = [
        (-_DEPTH_OF_ABS - math.log(most) - min(g**2 / 2, rules.FAR * g), 5.0 + top * g)
        for g in spreads
    ]
    differs = math.sqrt(max(g1**2 + g2**2 - 2 * rho * g1 * g2, 1e-300))
    end = min(max(math.sqrt(2 * _FALL) / differs, _LEAST_END), _LAST_END)
    eta = np.arange(0.0, end, along)
    behind = _NormalPair(spreads, rho, step)
    first, second = behind.counts
    count_t, count_u = ((high - low) / step for low, high in ranges)
    exponentials = second * count_u * first + count_t * (first + count_u * len(n)) * len(eta)
    products = first * count_u * (second + count_t) * len(eta)
    held = first * count_u * len(eta) + second * count_u + count_t * count_u * (2 + len(n))
    seconds = _BOTH_RULES * (_COMPLEX * exponentials + _COMPLEX_PRODUCT * products)
    rules.refuse_slow(*_widest(spreads), seconds, 2 * held)
    x, share, y, weight = behind.points()
    t, u = (rules.spaced(low, high, step) for low, high in ranges)
    # At each point of the normal behind both scores, means over the second are those over its own
    # normal; means over both are then products of matrices, one for each z.
    z, turn = 0.5 + 1j * eta, np.exp(1j * _TURN)
    lost2 = np.empty((len(x), len(u)), complex)
    of2 = np.empty((len(eta), len(x), len(u)), complex)
    powers = np.exp(z * behind.own * y[:, None]) * weight[:, None]
    for i, at in enumerate(rho * g2 * x):  # the second score, given the first
        log_y = u[:, None] + at + behind.own * y
        big = np.exp(np.minimum(log_y, _LARGE)) * turn
        lost2[i] = -np.expm1(-big) @ weight
        of2[:, i] = ((np.exp(-big) @ powers) * np.exp(z * (u[:, None] + at + 1j * _TURN))).T
    log_x = t[:, None] + g1 * x
    big = np.exp(np.minimum(log_x, _LARGE)) / turn
    kept = np.exp(-big) * share
    lost = (-np.expm1(-big) @ share)[:, None] + kept @ lost2  # 1 − φ
    with np.errstate(divide="ignore", invalid="ignore"):  # φ = 0 where both times are late
        log_phi = np.log1p(-lost).ravel()
        others = np.stack([m * np.exp((m - 1) * log_phi) for m in n])
    others = np.where(np.isfinite(others), others, 0.0)
    found, last = np.zeros(len(n)), np.zeros(len(n))
    for i, at in enumerate(z):
        both = (np.exp((1 - at) * (log_x - 1j * _TURN)) * kept) @ of2[i]
        scale = mix**at / (0.25 + eta[i] ** 2) * math.cosh(math.pi * eta[i]) / math.pi**2
        term = scale * (others @ both.ravel()) * step**2
        found += (0.5 if i == 0 else 1.0) * term.real * along
        last = np.maximum(np.abs(term), 0.5 * last)  # one of them may be near a zero
    return found, last * end


def normal_chance(h: np.ndarray, k: np.ndarray, rho: float) -> np.ndarray:
    """Return P(A < h, B < k) of two standard normals of correlation ρ (Owen 1956)."""
    # Owen's formula has a case of its own at 0 and at ρ = ±1: next to these it is continuous.
    h, k = np.where(h == 0, _TINY, h), np.where(k == 0, _TINY, k)
    rest = max(math.sqrt((1 - rho) * (1 + rho)), _TINY)
    apart = owens_t(h, (k - rho * h) / (h * rest)) + owens_t(k, (h - rho * k) / (k * rest))
    return (ndtr(h) + ndtr(k)) / 2 - apart - np.where((h < 0) != (k < 0), 0.5, 0.0)


def _other_keys(
    n: int, spreads: Spreads, rho: float, h: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ln Σ e^x of the other keys about their mean in both maps, and weights, by steps h."""
    if n == 2:
        return np.zeros(1), np.zeros(1), np.ones(1)
    z = h * np.arange(-math.ceil(_FAR_OF_PAIR / h), math.ceil(_FAR_OF_PAIR / h) + 1)
    first, second = (side.ravel() for side in np.meshgrid(z, z, indexing="ij"))
    kept = (first**2 + second**2 < _FAR_OF_PAIR**2) & (first >= 0)  # −D is as likely as D
    first, second = first[kept], second[kept]
    weight = np.exp(-(first**2 + second**2) / 2) * np.where(first == 0, 1.0, 2.0)
    second = rho * first + math.sqrt((1 - rho) * (1 + rho)) * second
    x, y = (math.sqrt(0.5) * g * side for g, side in zip(spreads, (first, second), strict=True))
    return np.logaddexp(x, -x), np.logaddexp(y, -y), weight / weight.sum()


def _mean_least_of_short(
    n: int, spreads: Spreads, rho: float, mix: float, rule: tuple[int, float]
) -> float:
    """Return E min(p, λq) of one key of 2 or 3, λ ≥ 1; infinite where that takes too long."""
    (points, step), (g1, g2) = rule, spreads
    reach = rules.FAR * math.sqrt(2)
    # σ' and the chance are smooth on the scale of the narrower spread: panels of twice that.
    low = max(-reach * g1, -_EDGE)  # below, U < w has no chance
    top = math.log(n - 1) + reach * g2  # of V, which is v(w) at `over`
    over = top + math.log1p(max((1 - mix) * math.exp(-top), -0.999)) - math.log(mix)
    high = min(max(math.log(n - 1) + reach * g1, over, low + 1e-9), _EDGE)  # above, both are sure
    panels = math.ceil((high - low) / min(2 * g1, 2 * g2, 2.0))
    h = step * min(1.0, _KINK / max(spreads))
    pairs = 1.0 if n == 2 else math.pi / 2 * (_FAR_OF_PAIR / h) ** 2
    if panels * points * pairs > _MOST_CHANCES:
        return math.inf
    x, y, weight = _other_keys(n, spreads, rho, h)
    edges = np.linspace(low, high, panels + 1)
    w, share = (each.ravel() for each in rules.gauss_panels(edges, points))
    v = np.logaddexp(math.log(mix - 1), math.log(mix) + w) if mix > 1 else w
    spread = math.sqrt(n / (n - 1))  # of the mean of the others less one's own, in units of γ
    blocks = math.ceil(len(w) * len(weight) / _HELD)
    chance = [
        normal_chance((a - x) / (spread * g1), (b - y) / (spread * g2), rho) @ weight
        for a, b in zip(*(np.array_split(t[:, None], blocks) for t in (w, v)), strict=True)
    ]
    return float(share @ (expit(w) * expit(-w) * np.concatenate(chance)) + expit(-high))


def _abs_sum_of_short(spreads: Spreads, rho: float, mix: float, n: int) -> tuple[float, float]:
    """Return E Σ|a| over rows of two or three tokens, and a bound on its relative error."""
    if abs(rho) > _ALIKE:
        fix = f"the law of Σ|a| of {n} tokens needs |ρ| ≤ {_ALIKE}; use estimate"
        raise InputError("rho", rho, fix)
    ordered, own, scale = spreads, mix, 1.0
    if mix < 1:
        ordered, own, scale = (spreads[1], spreads[0]), 1 / mix, mix
    fine, coarse = (
        scale * _mean_least_of_short(n, ordered, rho, own, rule) for rule in _RULES_OF_SHORT
    )
    if math.isinf(fine):
        fix = "its exact law takes too many points at these; use estimate"
        raise TooFine(*_widest(spreads), fix)
    value = 1 + mix - 2 * n * fine
    return value, (4 * n * abs(coarse - fine) + 1e-13 * (1 + mix)) / max(abs(value), _TINY)


def abs_sum(
    gamma: float, gamma2: float, rho: float, mix: float, length: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return E Σ|a| over rows of n, and a bound on its relative error; args as `square_sum`.

    Raises:
        TooFine: spreads at which the law takes more than seconds.
        InputError: maps so alike, or so opposite, that the law is not resolved.
    """
    n, spreads = np.asarray(length, dtype=np.float64), (gamma, gamma2)
    value, error = np.full(n.shape, abs(1.0 - mix)), np.zeros(n.shape)
    if mix == 0:
        return np.ones(n.shape), error
    for few in {2, 3} & set(n.ravel().tolist()):
        value[n == few], error[n == few] = _abs_sum_of_short(spreads, rho, mix, int(few))
    several = n > 3
    if several.any():
        (fine, beyond), (coarse, _) = (
            _mean_least(spreads, rho, mix, n[several], rule) for rule in _RULES_OF_ABS
        )
        value[several] = 1 + mix - 2 * fine
        error[several] = 2 * (np.abs(coarse - fine) + beyond) / np.abs(value[several]) + 1e-12
    if not (error < RESOLVED).all():
        fix = "the law of Σ|a| is not resolved where the maps are so alike; use estimate"
        raise InputError("length", n.tolist(), fix)
    return value, error
