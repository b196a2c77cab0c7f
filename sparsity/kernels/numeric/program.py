"""A SymPy expression of the score, evaluated in any of the three arithmetics.

Branches (|x|, max, steps, pieces) are decided by the sign of a value. Points know it; segments
know it or not; boxes take over what the segment inside them has decided. `FUNCTIONS` is the list of
what can be evaluated, with the rule for each.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import sympy

from sparsity.errors import InputError
from sparsity.kernels.numeric.points import EPS, Approx
from sparsity.kernels.numeric.split import Split, constant
from sparsity.kernels.symbols import s
from sparsity.special import comb

_FLAT = (  # functions that can be the same on a whole stretch
    *(sympy.Max, sympy.Min, sympy.Abs, sympy.sign, sympy.Heaviside, sympy.Piecewise),
    sympy.floor,
)
_TIE = 2.0  # the sign of what is exactly zero, where that may hold on a whole stretch
_HIGHEST_DEGREE = 128  # of a polynomial that is expanded: its binomials are floats
_HIGHEST_POWER = 1024  # that is taken by repeated squares; beyond, as a real power, for x ≥ 0


class Branches:
    """The signs on which branches were chosen, in the order in which they were asked for.

    Args:
        taken: signs to take over; None decides each by the value itself.
        fixed: whether the points are scores that have a mass each, so that a tie is one.
    """

    def __init__(self, taken: list[Any] | None = None, fixed: bool = False) -> None:
        """Begin with no decision."""
        self.fixed = fixed
        self._given, self.taken = iter(taken) if taken is not None else None, []

    def __call__(self, find: Callable[[], Any]) -> Any:
        """Return the next decision."""
        sign = next(self._given) if self._given is not None else find()
        self.taken.append(sign)
        return sign


class _Run:
    """One evaluation of an expression: each of its subexpressions is evaluated once."""

    def __init__(self, score: Split, branches: Branches) -> None:
        self.branches, self.kind, self.values = branches, type(score.d), {s: score}

    def __call__(self, e: Any) -> Split:
        """Return the value of a subexpression."""
        if e not in self.values:
            self.values[e] = constant(self.kind, e) if not e.free_symbols else self._node(e)
        return self.values[e]

    def _node(self, e: Any) -> Split:
        if e.func in FUNCTIONS:
            value = FUNCTIONS[e.func](self, e)
            # Points have nothing to gain from a second form: their error is that of rounding.
            if self.kind is not Approx and e.func is sympy.Add and (powers := _coefficients(e)):
                return _narrower(value, _taylor(powers, self.values[s]))
            return value
        names = ", ".join(sorted(str(f.__name__) for f in FUNCTIONS))
        raise InputError("weight", e, f"{e.func.__name__} cannot be evaluated; use {names}")

    def sign(self, value: Split) -> Any:
        """Return the sign of a value, as the branches have it."""
        return self.branches(lambda: value.whole().sign())

    def decided(self, e: Any, less: Any = sympy.S.Zero) -> Any:
        """Return the sign of e − less, which decides a step or a condition.

        Only what holds a function with flat parts can be zero on a whole stretch: there zero is a
        sign of its own, and nothing that may be zero counts as positive or negative. So it is at
        fixed scores.
        """
        # Not the value of e − less: SymPy would round the constants of both sides together.
        value = self(e) if less is sympy.S.Zero else self(e) - self(less)
        if not (e.has(*_FLAT) or less.has(*_FLAT) or self.branches.fixed):
            return self.sign(value)
        return self.branches(lambda: value.whole().strict_sign(_TIE))

    def select(self, sign: Any, above: Split, below: Split) -> Split:
        """Return `above` where the sign is 1 or 0, `below` where it is −1; both where undecided."""
        chosen = above.where(sign > 0, below)
        open_ = sign == 0
        return above.hull(below).where(open_, chosen) if np.any(open_) else chosen


@functools.lru_cache(maxsize=512)
def _coefficients(e: Any) -> tuple[float, ...]:
    """Return the coefficients of a polynomial of the score from degree 0 on; else ()."""
    if not e.is_polynomial(s):
        return ()
    coefficients = sympy.Poly(e, s).all_coeffs()[::-1]
    if not 3 <= len(coefficients) <= _HIGHEST_DEGREE or not all(c.is_real for c in coefficients):
        return ()
    return tuple(float(c) for c in coefficients)


def _taylor(powers: tuple[float, ...], score: Split) -> Any:
    """Return a polynomial on segments or boxes, by its Taylor series at their middles.

    Term by term, 1 + s + s²/2 + … is a difference of large numbers at s = −20, and an enclosure of
    it hopeless; its derivatives at a point are not.

    Args:
        powers: its coefficients, from degree 0 on; rounded once.
        score: a value that is not a point.
    """
    whole = score.whole()
    kind, middle = type(whole), whole.centre()
    # The offset from the middle is taken from the anchor and its rest, (a − middle) + d: from the
    # whole score, narrow segments far from zero would lose their width to rounding.
    gap = score.a - middle
    offset = score.d.plus(gap) + kind.exact(0.0, EPS * np.abs(gap))
    degree = np.arange(len(powers))
    terms = np.power(middle[..., None], degree) * 1.0
    total = None
    for j in reversed(range(len(powers))):  # Horner's rule over the j-th derivatives over j!
        parts = terms[..., : len(powers) - j] * (comb(degree[j:], j) * np.array(powers[j:]))
        value, slack = parts.sum(axis=-1), np.abs(parts).sum(axis=-1) * EPS * (len(powers) + 4)
        term = kind.exact(value, slack)
        total = term if total is None else term + total * offset
    return total


def _narrower(one: Split, other: Any) -> Split:
    """Return the narrower of two enclosures of the same number, each of which is valid."""
    return one.where(one.d.log_width() <= other.log_width(), Split(0.0, other))


def _folded(operation: Callable[[Split, Split], Split]) -> Callable[[_Run, Any], Split]:
    return lambda run, e: functools.reduce(operation, (run(part) for part in e.args))


def _pow(run: _Run, e: Any) -> Split:
    base, exponent = e.args
    if exponent.is_Integer and abs(int(exponent)) <= _HIGHEST_POWER:
        return run(base).power(int(exponent))
    if exponent.free_symbols:  # b^x as e^(x ln b), for b > 0
        return (run(base).log() * run(exponent)).exp()
    return run(base).real_power(float(exponent))


def _log(run: _Run, e: Any) -> Split:
    """Write log(a + c·e^x) as log a + softplus(x + log(c/a)): e^x may be beyond all floats.

    Also beside one: log(1 + e^x) for x → −∞ is e^x, to all digits.
    """
    terms = sympy.Add.make_args(e.args[0])
    powers = [term for term in terms if term.has(s)]
    if len(powers) == 1 and len(terms) > 1:
        scale, power = powers[0].as_independent(s)
        rest = sympy.Add(*(term for term in terms if term is not powers[0]))
        if isinstance(power, sympy.exp) and scale.is_positive and rest.is_positive:
            shifted = run(power.args[0])
            shifted = shifted if scale == rest else shifted + run(sympy.log(scale / rest))
            plus = shifted.softplus()
            return plus if rest == 1 else plus + run(sympy.log(rest))
    return run(e.args[0]).log()


def _abs(run: _Run, e: Any) -> Split:
    x = run(e.args[0])
    return x.absolute(run.sign(x))


# The larger of two parts by the sign of their difference: a branch like any other, which boxes take
# over from the segment inside them.
def _extreme(largest: bool) -> Callable[[_Run, Any], Split]:
    def of(run: _Run, e: Any) -> Split:
        best = run(e.args[0])
        for part in e.args[1:]:
            other = run(part)
            sign = run.sign(best - other)
            best = run.select(sign, best, other) if largest else run.select(sign, other, best)
        return best

    return of


# A step from `below` to 1, with a value of its own where its argument is zero on a whole stretch.
def _steps(below: float) -> Callable[[_Run, Any], Split]:
    def of(run: _Run, e: Any) -> Split:
        low, high = (Split(x, run.kind.exact(0.0)) for x in (below, 1.0))
        sign = run.decided(e.args[0])
        value = run.select(sign, high, low)
        if not np.any(sign == _TIE):
            return value
        between = run(e.args[1]) if len(e.args) > 1 else Split(0.0, run.kind.exact(0.0))
        return between.where(sign == _TIE, value)

    return of


# A floor is an exact constant wherever it is the same throughout: what is taken from it keeps its
# digits, and boxes continue it.
def _floor(run: _Run, e: Any) -> Split:
    x = run(e.args[0]).whole()
    step = run.branches(lambda: x.step())
    known = np.isfinite(step)
    whole = Split(np.where(known, step, 0.0), run.kind.exact(np.zeros(np.shape(step)))).settled()
    return whole if np.all(known) else whole.where(known, Split(0.0, x.floor(step)))


def _piecewise(run: _Run, e: Any) -> Split:
    *pairs, last = e.args
    if last.cond is sympy.S.true:
        result = run(last.expr)
    else:
        pairs, result = e.args, Split(0.0, run.kind.exact(np.nan))
    for branch in reversed(pairs):
        result = run.select(_holds(run, branch.cond), run(branch.expr), result)
    return result


def _holds(run: _Run, condition: Any) -> Any:
    """Return 1 where a condition holds, −1 where it does not, 0 where undecided."""
    if condition in (sympy.S.true, sympy.S.false):
        return np.float64(1.0 if condition is sympy.S.true else -1.0)
    if isinstance(condition, sympy.Not):
        return -_holds(run, condition.args[0])
    if isinstance(condition, (sympy.And, sympy.Or)):
        pick = np.minimum if isinstance(condition, sympy.And) else np.maximum
        return functools.reduce(pick, [_holds(run, part) for part in condition.args])
    if isinstance(condition, (sympy.Ge, sympy.Gt, sympy.Le, sympy.Lt)):
        sign = run.decided(condition.lhs, condition.rhs)
        at_tie = 1.0 if isinstance(condition, (sympy.Ge, sympy.Le)) else -1.0
        up = isinstance(condition, (sympy.Gt, sympy.Ge))
        return np.where(sign == _TIE, at_tie, sign if up else -sign)
    raise InputError("weight", condition, "cannot be decided; use <, <=, >, >=, &, | and ~")


def _tan(run: _Run, e: Any) -> Split:
    x = run(e.args[0])
    return x.sin() * x.cos().reciprocal()


def _method(name: str) -> Callable[[_Run, Any], Split]:
    return lambda run, e: getattr(run(e.args[0]), name)()


_METHODS = ("exp", "sin", "cos", "sinh", "cosh", "tanh", "atan", "erf", "erfc")

FUNCTIONS: dict[Any, Callable[[_Run, Any], Split]] = {
    sympy.Add: _folded(operator.add),
    sympy.Mul: _folded(operator.mul),
    sympy.Pow: _pow,
    sympy.log: _log,
    **{getattr(sympy, name): _method(name) for name in _METHODS},
    sympy.tan: _tan,
    sympy.Abs: _abs,
    sympy.sign: _steps(-1.0),
    sympy.Heaviside: _steps(0.0),
    sympy.Max: _extreme(True),
    sympy.Min: _extreme(False),
    sympy.floor: _floor,
    sympy.Piecewise: _piecewise,
}


def evaluate(expression: Any, score: Split, branches: Branches) -> Split:
    """Return the value of an expression of the score.

    Args:
        expression: in `sparsity.kernels.symbols.s`.
        score: the score.
        branches: where the signs of branches come from, and where they are kept.

    Raises:
        InputError: a function that is not in `FUNCTIONS`.
    """
    with np.errstate(all="ignore"):
        return _Run(score, branches)(expression)
