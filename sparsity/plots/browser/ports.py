"""The weight of a kernel as JavaScript, and where it is not zero.

A page computes in float64 from the formula as it is written. What a formula loses that way, as
1 + tanh(s) does far to the left, no check in the page could see: here every port is held against
the kernel's definition first, which loses no digits, and refused where it differs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import numpy as np
import sympy
from scipy.optimize import brentq
from scipy.special import erfc
from sympy.codegen.rewriting import optimize, optims_c99
from sympy.core.relational import Relational
from sympy.printing.jscode import JavascriptCodePrinter

from sparsity import kernels
from sparsity.errors import InputError
from sparsity.kernels import Kernel, Law, RowMap
from sparsity.kernels.numeric.definition import definition
from sparsity.kernels.numeric.points import Approx
from sparsity.kernels.symbols import s

# What front/law.js has closed forms of, by definition as in `limit.closed_form`.
_CLOSED = {
    kernels.exp.weight: "exp",
    kernels.relu2.weight: "relu2",
    kernels.identity.weight: "identity",
    kernels.zoo.absolute.weight: "identity",  # S takes |a|
}
_OTHER_LAWS = {kernels.nonnegative.weight: "features", kernels.decayed.weight: "position"}

# 1 + erf(x), which cancels for x < 0. SymPy would turn erfc(−x) into 2 − erfc(x), which does too.
_ERFC_OF_MINUS = sympy.Function("erfcOfMinus")
_FUNCTIONS = {"erf": "erf", "erfc": "erfc", "erfcOfMinus": "erfcOfMinus"}
_FUNCTIONS |= {
    name: f"Math.{name}" for name in ("expm1", "log1p", "sinh", "cosh", "tanh", "sign", "atan")
}
_SAME = 1e-9  # of log|f|, of a port and the definition; a page promises 1e-6
# Where they are compared: scores of γ up to 20 reach to 200. Next to a zero log|f| has fewer digits
# than f, and the law has no mass there.
_OFFSETS = np.geomspace(1e-4, 300.0, 400)
# Where zeros and kinks are looked for that the definition does not know, and how many are kept.
_LOOKED_AT, _MOST_KINKS = np.linspace(-60.0, 60.0, 2401) + 1e-4, 24
_LEAST, _LARGEST = -660.0, 700.0  # log|f| that float64 holds, and the page asks for


class Port(NamedTuple):
    """A kernel as a page has it.

    Args:
        record: name, law, regions and words, in JSON's types.
        size: log f², as a JavaScript expression of s.
    """

    record: dict[str, Any]
    size: str


def port(kernel: Kernel | RowMap) -> Port:
    """Return a kernel as a page has it.

    Raises:
        InputError: it is a map of whole rows, uses a function that JavaScript does not have, or
            loses digits in float64.
    """
    law = None
    if isinstance(kernel, Kernel):
        law = "score" if kernel.law is Law.SCORE else _OTHER_LAWS.get(kernel.weight)
    if law is None or not isinstance(kernel, Kernel):
        _refuse(kernel, "is no function of one score")
    unknown = kernels.in_python(kernel) == kernel.name  # a bare name
    record: dict[str, Any] = {
        "name": kernel.name,
        "title": kernel.title,
        "formula": f"a = {kernel.weight}",
        "python": str(kernel.weight) if unknown else kernel.name,
        "law": law,
        "closed": _CLOSED.get(kernel.weight),
        "regions": [],
    }
    if law != "score":
        return Port(record | {"least": None}, "NaN")
    # The exponent of e^g never overflows, and has digits where the weight has none.
    exponential = isinstance(kernel.weight, sympy.exp)
    expression = _keep_digits(kernel.weight.args[0] if exponential else kernel.weight)
    text = _in_javascript(kernel, expression)
    record["regions"] = _hold_against_definition(kernel, expression, exponential)
    record["least"] = None if exponential else 2 * _LEAST
    return Port(record, f"2 * ({text})" if exponential else f"2 * Math.log(Math.abs({text}))")


def _keep_digits(weight: Any) -> Any:
    """Return an expression with expm1, log1p and erfc where they lose nothing."""

    def cancels(part: Any) -> bool:
        two = part.is_Add and len(part.args) == 2
        return two and part.args[0] == 1 and isinstance(part.args[1], sympy.erf)

    kept = weight.replace(cancels, lambda part: _ERFC_OF_MINUS(part.args[1].args[0]))
    return optimize(kept, optims_c99)


def _in_javascript(kernel: Kernel, expression: Any) -> str:
    settings = {"user_functions": _FUNCTIONS, "strict": True}
    try:
        return " ".join(str(JavascriptCodePrinter(settings).doprint(expression)).split())
    except Exception:  # noqa: BLE001 - SymPy raises what it likes of what it cannot print
        _refuse(kernel, "uses a function that JavaScript does not have")


def _hold_against_definition(
    kernel: Kernel, expression: Any, exponential: bool
) -> list[list[float | None]]:
    """Return the regions where f ≠ 0, each [anchor, low, high] with offsets from the anchor.

    Args:
        kernel: the kernel.
        expression: its weight, or of an exponential its logarithm.
        exponential: which of the two.

    Raises:
        InputError: the expression in float64 is not the definition.
    """
    defined, f = definition(kernel), _as_function(expression)
    regions: list[list[float | None]] = []
    for anchor, low, high in _between(_kinks(kernel, defined.roots)):
        # Half a region lies to one side of its anchor.
        side = -1.0 if low is None or low < 0 else 1.0
        end = low if side < 0 else high
        offsets = _OFFSETS if end is None else _OFFSETS[_OFFSETS < abs(end)]
        if not offsets.size:
            offsets = np.array([abs(end or 0.0) / 2])
        truth = defined.values_at(anchor, Approx(side * offsets)).log
        seen = (truth > _LEAST) & (truth < _LARGEST)
        with np.errstate(all="ignore"):
            drawn = f(anchor + side * offsets) + 0.0 * offsets
            drawn = drawn if exponential else np.log(np.abs(drawn))
            differs = ~(np.abs(drawn - truth) <= _SAME)  # NaN too
            off = np.where(seen, differs, (truth == -np.inf) & (drawn > _LEAST))
        if off.any():
            at = anchor + side * float(offsets[off][0])
            _refuse(kernel, f"loses digits in a browser, at s = {at:.3g}")
        if (truth > -np.inf).any():
            regions.append([anchor, low, high])
    if not regions:
        _refuse(kernel, "is 0 wherever a page looks")
    return regions


def _as_function(expression: Any) -> Callable[[Any], Any]:
    """Return an expression of the score in float64, as a browser computes it."""
    modules = [{"erfcOfMinus": lambda x: erfc(-x)}, "scipy", "numpy"]
    return sympy.lambdify([s], expression, modules)


def _kinks(kernel: Kernel, known: tuple[float, ...]) -> tuple[float, ...]:
    """Return the scores between which |f| is smooth: known ones, and changes of sign.

    Raises:
        InputError: there are too many.
    """
    weight, kinks = kernel.weight, list(known)
    if weight.has(sympy.floor, sympy.ceiling):
        _refuse(kernel, "has more kinks than a page cuts at")
    switches = [weight, *(part.args[0] for part in weight.atoms(sympy.Abs))]
    switches += [part.lhs - part.rhs for part in weight.atoms(Relational)]
    for part in weight.atoms(sympy.Max, sympy.Min):
        switches += [a - b for a, b in itertools.combinations(part.args, 2)]
    for switch in switches:
        f = _as_function(switch)
        with np.errstate(all="ignore"):
            sign = np.sign(f(_LOOKED_AT) + 0.0 * _LOOKED_AT)
            for k in np.flatnonzero(sign[:-1] * sign[1:] < 0).tolist():
                at = float(brentq(f, *_LOOKED_AT[k : k + 2], xtol=1e-15, maxiter=1000))  # type: ignore[arg-type]
                if min(abs(at - other) for other in kinks) > 1e-9:
                    kinks.append(at)
                if len(kinks) > _MOST_KINKS:
                    _refuse(kernel, f"has more than {_MOST_KINKS} zeros and kinks")
    return tuple(sorted(kinks))


def _between(roots: tuple[float, ...]) -> list[tuple[float, float | None, float | None]]:
    """Return the line cut at roots, and halfway between two, as (anchor, low, high); None is ∞."""
    cut: list[tuple[float, float | None, float | None]] = [(roots[0], None, 0.0)]
    for a, b in itertools.pairwise(roots):
        half = (b - a) / 2
        cut += [(a, 0.0, half), (b, -half, 0.0)]
    return [*cut, (roots[-1], 0.0, None)]


def _refuse(kernel: Kernel | RowMap, why: str) -> NoReturn:
    fix = "a page shows the functions of one score in `sparsity list`, and formulas of s like them"
    raise InputError("kernel", kernel.name, f"{why}; {fix}")
