"""The second method: mpmath's tanh-sinh rule at two resolutions, on stretches between breaks.

It shares no code with the balls: f is SymPy's own translation, breaks are changes of sign of the
arguments of Abs, sign, Heaviside, floor, Max, Min and conditions, and of f, found by sampling.
"""

from __future__ import annotations

import itertools
import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mpmath
import numpy as np
import sympy
from mpmath import mp, mpf
from mpmath.calculus.quadrature import TanhSinh
from sympy.core.relational import Relational

from benchmarks.campaign.limits import NoReference

__all__ = ["limited", "numeric_log_s"]

DIGITS = 50
AGREE = mpf("1e-31")  # of the two resolutions, relative to a moment
DEEP = 75  # e-folds below the peak that are kept
RULE = TanhSinh(mp)
Function = Callable[[Any], Any]


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """A TimeoutError after so long."""

    def stop(*_: Any) -> None:
        raise TimeoutError("time")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _lambdify(expression: Any, symbol: Any) -> Function:
    names = {"Heaviside": lambda x, *_: mpf(1) if x > 0 else mpf(0)}
    return sympy.lambdify([symbol], expression, [names, "mpmath"])


def _switches(expression: Any) -> Iterator[Any]:
    """Expressions at whose zeros f may fail to be smooth; floor comes as sin(πg)."""
    yield expression
    for node in sympy.preorder_traversal(expression):
        if isinstance(node, (sympy.Abs, sympy.sign, sympy.Heaviside, sympy.log)):
            yield node.args[0]
        elif isinstance(node, (sympy.floor, sympy.ceiling, sympy.frac)):
            yield sympy.sin(sympy.pi * node.args[0])
        elif isinstance(node, sympy.Mod):
            yield sympy.sin(sympy.pi * node.args[0] / node.args[1])
        elif isinstance(node, (sympy.Max, sympy.Min)):
            parts: Any = node.args
            yield from (a - b for i, a in enumerate(parts) for b in parts[:i])
        elif isinstance(node, Relational):
            ends: Any = node.args
            yield ends[0] - ends[1]
        elif isinstance(node, sympy.Pow) and not (node.exp.is_Integer and node.exp > 0):
            yield node.base


def _zero(g: Function, low: Any, high: Any) -> Any:
    """Where g changes its sign, by halving."""
    first = g(low) > 0
    for _ in range(int(DIGITS * 3.4)):
        middle = (low + high) / 2
        low, high = (middle, high) if (g(middle) > 0) == first else (low, middle)
    return (low + high) / 2


def _safe(f: Function) -> Function:
    def value(x: Any) -> Any:
        try:
            found = f(x)
        except (ZeroDivisionError, ValueError):
            return mpf("nan")
        return found.real if isinstance(found, mpmath.mpc) and not found.imag else found

    return value


def _grid(beta: float, gamma: float, points: list[Any]) -> list[Any]:
    t = np.concatenate([np.linspace(-16, 16, 641), np.geomspace(16, 3e5, 60)])
    near = np.concatenate([np.geomspace(1e-9, 1e3, 100), np.linspace(0, 40, 161)])
    scores = [mpf(beta) + mpf(gamma) * mpf(float(x)) for x in (*t, *(-t))]
    scores += [c + side * mpf(float(x)) for c in points for x in near for side in (1, -1)]
    return sorted(set(scores))


def _features(expression: Any, symbol: Any) -> list[Any]:
    """Zeros of the straight lines inside the kernel."""
    found = {sympy.Integer(0)}
    for node in sympy.preorder_traversal(expression):
        if isinstance(node, sympy.Add) and node.is_polynomial(symbol):
            line = sympy.Poly(node, symbol)
            if line.degree() == 1:
                found.add(-line.nth(0) / line.nth(1))
    exact: list[Any] = [sympy.Rational(x) for x in found if x.is_Rational or x.is_Float]
    return [mpf(int(x.p)) / int(x.q) for x in exact][:12]


def _breaks(expression: Any, symbol: Any, scores: list[Any]) -> list[Any]:
    found = []
    for switch in {x for x in _switches(expression) if symbol in x.free_symbols}:
        g = _safe(_lambdify(switch, symbol))
        values = [g(x) for x in scores]
        sizes = [abs(v) if mpmath.isfinite(v) else mpf("inf") for v in values]
        signs = [v > 0 if mpmath.isfinite(v) else None for v in values]
        found += [x for x, sign in zip(scores, signs, strict=True) if sign is None]
        for i, size in enumerate(sizes[1:-1], 1):  # zeros that were met
            if size < mpf("1e-35") * max(sizes[i - 1], sizes[i + 1]) < mpf("inf"):
                found.append(scores[i])
                signs[i] = None
        for a, b, x, y in zip(scores[:-1], scores[1:], signs[:-1], signs[1:], strict=True):
            if x is not None and y is not None and x != y:
                found.append(_zero(g, a, b))
    return found


def _integral(h: Function, ends: list[Any]) -> Any:
    """The sum over the stretches, where two resolutions agree; neither stops early."""
    total, gap = mpf(0), mpf(0)
    for a, b in itertools.pairwise(ends):
        sums: list[Any] = []
        for degree in range(1, 9):
            points = RULE.get_nodes(a, b, degree, mp.prec)
            sums.append(RULE.sum_next(h, points, degree, mp.prec, sums))
        total, gap = total + sums[-1], gap + abs(sums[-1] - sums[-2])
    if not gap <= AGREE * total:
        raise NoReference(f"two resolutions differ by {mpmath.nstr(gap / total, 2)}")
    return total


def _log_moment(h: Function, scores: list[Any], inner: list[Any]) -> Any:
    values = [h(x) for x in scores]
    good = [mpmath.isfinite(v) and v > 0 for v in values]
    sizes = [float(mpmath.log(v)) if ok else -math.inf for v, ok in zip(values, good, strict=True)]
    if max(sizes) == -math.inf or math.inf in sizes:
        raise NoReference("vanishes wherever it was sampled")
    live = [i for i, size in enumerate(sizes) if size > max(sizes) - DEEP]
    low, high = scores[max(live[0] - 1, 0)], scores[min(live[-1] + 1, len(scores) - 1)]
    return mpmath.log(_integral(h, [low, *(x for x in inner if low < x < high), high]))


def _digits_needed(f: Function, scores: list[Any]) -> int:
    """Digits at which f has 36 good ones wherever it was sampled and is not tiny."""
    for dps in (DIGITS, 120):
        with mp.workdps(2 * dps):
            fine = [f(x) for x in scores[::17]]
        with mp.workdps(dps):
            coarse = [f(x) for x in scores[::17]]
        pairs = [(x, y) for x, y in zip(fine, coarse, strict=True) if mpmath.isfinite(x)]
        if all(abs(x - y) <= abs(x) * mpf("1e-36") + mpf("1e-900") for x, y in pairs):
            return dps
    raise NoReference("f cancels beyond 120 digits")


def numeric_log_s(expression: Any, beta: float, gamma: float) -> str:
    """Log S in decimal, to 31 places.

    Raises:
        NoReference: the two resolutions differ, or f vanishes or fails wherever it was sampled.
    """
    (symbol,) = expression.free_symbols
    expression = expression.xreplace({x: sympy.Rational(x) for x in expression.atoms(sympy.Float)})
    f = _safe(_lambdify(expression, symbol))
    with mp.workdps(DIGITS):
        points = _features(expression, symbol)
        scores = _grid(beta, gamma, points)
        digits = _digits_needed(f, [x for x in scores if abs(x - beta) < 30 * gamma])
    with mp.workdps(digits):
        mean, scale = mpf(beta), mpf(gamma)
        inner = _breaks(expression, symbol, scores) + points
        inner += [mean + scale * k for k in range(-16, 17, 2)]
        inner += [c + sign * mpf(10) ** k for c in points for k in range(-4, 3) for sign in (1, -1)]
        logs = []
        for p in (1, 2):

            def h(x: Any, p: int = p) -> Any:
                return abs(f(x)) ** p * mpmath.exp(-(((x - mean) / scale) ** 2) / 2)

            logs.append(_log_moment(h, scores, sorted(set(inner))))
        log_S = logs[0] - (logs[1] + mpmath.log(scale * mpmath.sqrt(2 * mp.pi))) / 2
        size = math.ceil(math.log10(max(1.0, abs(float(log_S)))))
        return str(mpmath.nstr(log_S, 32 + size))
