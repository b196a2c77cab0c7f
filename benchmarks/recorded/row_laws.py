"""References of exact laws: the one-dimensional integrals over rows of n, in ball arithmetic.

With x = t|a|^c and u = ln t, every law is ∫ g(ψ, m) du of ψ = E[1 − e^(−x)] and m_k = E[x^k e^(−x)]
(see `sparsity.quantities`). Both integrals are trapezoidal sums, of analytic integrands: u has a
strip of π/2, so that a step of a tenth leaves e^(−98). Where log|a| is a straight line, of softmax
in the score and of powers in its logarithm, the steps are chosen to match: x depends on the sum of
two indices alone, and the inner sums are one product of polynomials with whole coefficients. Other
kernels are integrated by Gauss's rule on panels, from zero to zero of f.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from flint import arb, ctx, fmpz, fmpz_poly

BITS = 260
_POINT = 420  # bits behind the point of a whole coefficient
_FAR = 14.0  # standard deviations that count: e^(−98)
_E_FOLDS = 86.0  # that count, of anything
_PER_UNIT = 8  # points of u where its steps match nothing: e^(−79)
_RULE = 30  # points of Gauss's rule on a panel
_PANEL = 0.5  # of scores: e^(−x) has 30 digits on it
# Of a panel towards a zero of f. Rows of two or more whose weights are all as small as 2^−50 have a
# chance of 2^−100.
_HALVINGS = 50

Order = float | tuple[float, str]  # of x^k e^(−x); (k, "log") has a factor ln x besides


@dataclass(frozen=True)
class Tables:
    """ψ and the moments of one law at the points of u.

    Args:
        u: ascending, evenly spaced.
        psi: E[1 − e^(−x)], given that the weight is not zero.
        moments: by order, likewise.
        nonzero: P(f ≠ 0).
        per_unit: points of u in a unit.
    """

    u: list[arb]
    psi: list[arb]
    moments: dict[Order, list[arb]]
    nonzero: arb
    per_unit: int


def _of_x(log_x: arb, order: Order | None) -> arb:
    """Return 1 − e^(−x) for None, else x^k e^(−x)."""
    x = log_x.exp()
    if order is None:
        return -(-x).expm1()
    k, logged = order if isinstance(order, tuple) else (order, "")
    found = (-x).exp() * (log_x * arb(k)).exp()
    return found * log_x if logged else found


def _whole(value: arb) -> fmpz:
    found = (value * arb(2) ** _POINT).mid().floor().unique_fmpz()
    assert found is not None
    return found


@functools.lru_cache(maxsize=64)
def _whole_of_x(first: int, count: int, order: Order | None, per_unit: int) -> fmpz_poly:
    whole = range(first, first + count)
    return fmpz_poly([_whole(_of_x(arb(i) / per_unit, order)) for i in whole])


def _softmax_nodes(gamma: float, power: int) -> tuple[int, list[arb]]:
    """Return the first index, and the chances of the scores of e^s, β = 0, matched to a tenth."""
    h = arb(1) / 10 / (power * arb(gamma))
    reach = int(_FAR / float(h)) + 1
    scale = h / (2 * arb.pi()).sqrt()
    return -reach, [scale * (-((i * h) ** 2) / 2).exp() for i in range(-reach, reach + 1)]


def _power_nodes(
    degree: int, sides: tuple[int, ...], beta: float, gamma: float, power: int, per_unit: int
) -> tuple[int, list[arb]]:
    """Return the first index of ln|s|, and the chances of |s|^degree, matched to the steps of u."""
    h = arb(1) / per_unit / (power * degree)
    z, (mean, spread) = beta / gamma, (arb(beta), arb(gamma))
    top = math.log(abs(beta) + _FAR * gamma)
    low = math.log(gamma) - math.log(max(1.0, abs(z))) - _E_FOLDS
    first, last = int(low / float(h)) - 1, int(top / float(h)) + 1
    chances = []
    for i in range(first, last + 1):
        size = (i * h).exp()
        density = sum(
            ((-(((side * size - mean) / spread) ** 2) / 2).exp() for side in sides), arb(0)
        )
        chances.append(h * size * density / (spread * (2 * arb.pi()).sqrt()))
    return first, chances


POWERS: dict[str, tuple[int, tuple[int, ...]]] = {
    "identity": (1, (1, -1)), "abs": (1, (1, -1)), "relu": (1, (1,)), "relu2": (2, (1,)),
    "relu3": (3, (1,)), "power2": (2, (1, -1)), "power4": (4, (1, -1)),
}  # fmt: skip


def _matched(
    kernel: str, beta: float, gamma: float, power: int, orders: tuple[Order, ...]
) -> Tables:
    """Return the tables of softmax or a power by one product of polynomials each."""
    nonzero, per_unit = arb(1), 10
    if kernel == "exp":
        first, chances = _softmax_nodes(gamma, power)
        shift = -power * arb(beta)
    else:
        degree, sides = POWERS[kernel]
        # As a function of ln|s| the density has a strip of about γ/β.
        per_unit *= math.ceil(abs(beta / gamma) / (3.5 * power * degree)) or 1
        first, chances = _power_nodes(degree, sides, beta, gamma, power, per_unit)
        shift = arb(0)
        if len(sides) == 1:
            nonzero = _phi(arb(beta) / arb(gamma))
            chances = [chance / nonzero for chance in chances]
    # ln x is a step times i + j, of node i and point j of u.
    last = first + len(chances) - 1
    begin, end = -last - 250 * per_unit, -first + 60 * per_unit
    count = end - begin
    reverse = fmpz_poly([_whole(chance) for chance in reversed(chances)])
    found: dict[Order | None, list[arb]] = {}
    for order in (None, *orders):
        values = _whole_of_x(begin + first, count + len(chances) - 1, order, per_unit)
        product, scale = values * reverse, arb(2) ** (-2 * _POINT)
        found[order] = [arb(product[j + len(chances) - 1]) * scale for j in range(count)]
    psi = found.pop(None)
    u = [arb(begin + j) / per_unit + shift for j in range(count)]
    return Tables(u, psi, found, nonzero, per_unit)  # type: ignore[arg-type]


def _phi(z: arb) -> arb:
    """Return Φ(z), with its digits in the lower tail."""
    return (-z / arb(2).sqrt()).erfc() / 2


@functools.lru_cache(maxsize=2)
def _gauss(points: int) -> tuple[tuple[arb, arb], ...]:
    return tuple(arb.legendre_p_root(points, i, weight=True) for i in range(points))


_SMOOTH: dict[str, tuple[Callable[[arb], arb], bool]] = {  # |f|, and whether f(0) = 0
    "cosh": (lambda s: s.cosh(), False),
    "taylor2": (lambda s: 1 + s + s * s / 2, False),
    "taylor4": (lambda s: 1 + s + s**2 / 2 + s**3 / 6 + s**4 / 24, False),
    "threshold": (lambda s: s.exp() if s > 0 else arb(0), False),
    "softpick": (lambda s: s.expm1() if s > 0 else arb(0), True),
    "softplus": (lambda s: s.exp().log1p(), False),
    "sigmoid": (lambda s: 1 / (1 + (-s).exp()), False),
    "elu+1": (lambda s: s + 1 if s > 0 else s.exp(), False),
    "elu": (lambda s: s if s > 0 else -s.expm1(), True),
    "gelu": (lambda s: abs(s) * (-s / arb(2).sqrt()).erfc() / 2, True),
    "silu": (lambda s: abs(s) / (1 + (-s).exp()), True),
    "exp": (lambda s: s.exp(), False),
}


def _panels(beta: float, gamma: float, zero: bool) -> list[tuple[arb, arb]]:
    """Return panels of scores on which ln|f| is nearly straight, and the density as well."""
    low, high, width = beta - _FAR * gamma, beta + _FAR * gamma, min(_PANEL, gamma)
    edges = {low, high, *([0.0] if low < 0 < high else [])}
    at = low
    while at < high:
        edges.add(at)
        at += width
    if zero and low < 0 < high:
        edges = {x for x in edges if x == 0 or abs(x) > width / 2}
        edges |= {side * width * 2.0**-i for side in (-1, 1) for i in range(1, _HALVINGS)}
    ordered = [arb(x) for x in sorted(x for x in edges if low <= x <= high)]
    return list(itertools.pairwise(ordered))


def _nodes(kernel: str, beta: float, gamma: float) -> tuple[list[tuple[arb, arb]], arb]:
    """Return (ln|f|, chance) of every node, given f ≠ 0, and P(f ≠ 0)."""
    f, zero = _SMOOTH[kernel]
    mean, spread, found = arb(beta), arb(gamma), []
    for a, b in _panels(beta, gamma, zero):
        middle, half = (a + b) / 2, (b - a) / 2
        for x, w in _gauss(_RULE):
            s = middle + half * x
            size = f(s)
            if size > 0:
                chance = w * half * (-(((s - mean) / spread) ** 2) / 2).exp()
                found.append((size.log(), chance / (spread * (2 * arb.pi()).sqrt())))
    nonzero = _phi(mean / spread) if kernel in ("threshold", "softpick") else arb(1)
    return [(log, chance / nonzero) for log, chance in found], nonzero


class _Nodes:
    """Sums over the nodes of a kernel at any u = ln t, x = t|f|^power."""

    def __init__(self, kernel: str, beta: float, gamma: float, power: int) -> None:
        found, self.nonzero = _nodes(kernel, beta, gamma)
        found.sort(key=lambda node: float(node[0]))
        self.log = [power * log for log, _ in found]
        self.about = [float(log) for log in self.log]
        self.size = [log.exp() for log in self.log]
        self.chance = [chance for _, chance in found]
        self.below = list(itertools.accumulate(self.chance, initial=arb(0)))

    def at(self, u: arb, orders: tuple[Order, ...]) -> list[arb]:
        """Return ψ and the moments, given that the weight is not zero."""
        shift, t = float(u), u.exp()
        small = bisect.bisect(self.about, 5.3 - shift)  # from x = 200 on, e^(−x) is gone
        sums = [self.below[-1] - self.below[small], *(arb(0) for _ in orders)]
        for i in range(small):
            x, chance = t * self.size[i], self.chance[i]
            less = (-x).exp()
            sums[0] += chance * (1 - less if self.about[i] + shift > -20 else -(-x).expm1())
            for j, order in enumerate(orders, 1):
                k, logged = order if isinstance(order, tuple) else (order, "")
                rise = x if k == 1 else x.sqrt() if k == 0.5 else x * x if k == 2 else x ** arb(k)
                part = chance * less * rise
                sums[j] += part * (u + self.log[i]) if logged else part
        return sums


def _by_nodes(
    kernel: str, beta: float, gamma: float, power: int, orders: tuple[Order, ...]
) -> Tables:
    """Return the tables of any kernel, point by point."""
    nodes = _Nodes(kernel, beta, gamma, power)
    logs = [x for x, chance in zip(nodes.about, nodes.chance, strict=True) if chance > 1e-40]
    # With a zero of f, small weights reach down to 1e−38, where P(|f| < x) ~ x.
    low, high = (int(_PER_UNIT * end) for end in (-170 - max(logs), 8 - min(logs)))
    u = [arb(i) / _PER_UNIT for i in range(low, high)]
    psi, *moments = zip(*(nodes.at(each, orders) for each in u), strict=True)
    by_order = dict(zip(orders, map(list, moments), strict=True))
    return Tables(u, list(psi), by_order, nodes.nonzero, _PER_UNIT)


def transform(
    kernel: str, beta: float, gamma: float, power: int, order: float | None, u: float
) -> str:
    """Return E[1 − e^(−x)], or with an order E[x^order e^(−x)], x = e^u |f|^power."""
    with ctx.workprec(BITS):
        nodes = _Nodes(kernel, beta, gamma, power)
        orders = () if order is None else (order,)
        return digits(nodes.at(arb(u), orders)[-1] * nodes.nonzero)


@functools.lru_cache(maxsize=32)
def tables(kernel: str, beta: float, gamma: float, power: int, orders: tuple[Order, ...]) -> Tables:
    """Return ψ and moments of a kernel at all points of u that count."""
    with ctx.workprec(BITS):
        if kernel != "exp" and kernel in POWERS:
            return _matched(kernel, beta, gamma, power, orders)
        if kernel == "exp" and power * gamma > 0.25:
            return _matched(kernel, beta, gamma, power, orders)
        return _by_nodes(kernel, beta, gamma, power, orders)


_POWER_OF = {"S": 2, "n_eff": 2, "needle_signal": 2, "hoyer": 2}
_ORDERS: dict[str, tuple[Order, ...]] = {
    "S": (0.5,), "hoyer": (0.5,), "n_eff": (0.5, 1.0),
    "participation": (2.0,), "entropy": (1.0, (1.0, "log")),
    "sink_mass": (), "needle_mass": (), "needle_signal": (),
}  # fmt: skip


def mean(
    of: str,
    kernel: str,
    beta: float,
    gamma: float,
    n: float,
    unit: float | None = None,
    fixed: float | None = None,
) -> arb:
    """Return the mean of a quantity over rows of n tokens that are not all zero.

    Args:
        of: the quantity, with its number after a colon.
        kernel, beta, gamma: of i.i.d. tokens.
        n: the length, a whole number.
        unit: b of a sink logit beside them.
        fixed: b of one token among the n with a fixed score, softmax's sink or needle.
    """
    name, _, number = of.partition(":")
    if n == 1 and unit is None and fixed is None:  # one key has it all
        return arb(0 if name in ("entropy", "hoyer") else 1)
    alpha = float(number) if name == "power_sum" else 0.0
    orders = (alpha,) if name == "power_sum" else _ORDERS[name]
    power = _POWER_OF.get(name, 1)
    own = tables(kernel, beta, gamma, power, orders)
    n = int(n)
    random = n if fixed is None else n - 1
    with ctx.workprec(BITS):
        nonzero = own.nonzero
        euler, total, most = arb.const_euler(), arb(0), arb(0)
        for j, u in enumerate(own.u):
            psi = own.psi[j] * nonzero
            if not psi < 1:  # rounding, where φ has no digits left
                break
            m = [own.moments[order][j] * nonzero for order in orders]
            log_phi = (-psi).log1p()
            phi = log_phi.exp()
            if random * log_phi < -300:
                break
            if name in ("sink_mass", "needle_mass", "needle_signal"):
                x = (u + power * arb(fixed if unit is None else unit)).exp()
                body = x * (random * log_phi - x).exp()
            elif name == "n_eff":
                pairs = n * (n - 1) * m[0] * m[0] * ((n - 2) * log_phi).exp()
                body = n * m[1] * ((n - 1) * log_phi).exp() + pairs
            else:
                first = -m[1] - euler * m[0] if name == "entropy" else m[0]
                body = n * first * ((n - 1) * log_phi).exp()
                if unit is not None:
                    body *= (-(u + arb(unit)).exp()).exp()
            if not phi > 0:
                break
            total += body
            most = most.max(abs(body))
            if j > 50 and abs(body) < most * arb("1e-45") and psi > 0.5:
                break
        total /= own.per_unit
        if nonzero < 1 and unit is None and fixed is None:
            total /= -(random * (-nonzero).log1p()).expm1()
        if name in ("S", "hoyer"):
            total /= (arb(n) * arb.pi()).sqrt()
        if name == "power_sum":
            total /= arb(alpha).gamma()
        if name == "hoyer":
            return (1 - total) / (1 - 1 / arb(n).sqrt())
        return total


def digits(value: arb) -> str:
    """Return a ball's midpoint in decimal."""
    with ctx.workprec(BITS):
        return arb(value.mid()).str(34, radius=False)
