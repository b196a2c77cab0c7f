"""From a kernel's definition to its moments, S, limits and leading asymptotics, with SymPy.

Nothing here is typed in: each result is integrated or summed from `Kernel.weight` under
`Kernel.law`, and every antiderivative is differentiated back before it is used.

    Kernel ─┬─ of a score ─> scores: pieces ─> moments ─> S ─> asymptotics: limits ─┐
            ├─ of features ─> sums: mean and covariance ────────────────────────────┼─> Derivation
            └─ of a position ─> sums: geometric ────────────────────────────────────┘

SymPy has no limit on time: `takes_seconds` tells by the size of a formula whether it is long.
"""

from __future__ import annotations

import functools

import sympy
from sympy import Expr

from sparsity.calls import public
from sparsity.derivation import score_kernels
from sparsity.derivation.derivation import Case, Derivation, Limit
from sparsity.derivation.pieces import SWITCHES, switching_quantities
from sparsity.derivation.sums import derive_features, derive_positions
from sparsity.errors import InputError, NoClosedForm
from sparsity.kernels import Kernel, Law, elementwise, known
from sparsity.kernels.symbols import s
from sparsity.rows.row import Row

__all__ = ["Case", "Derivation", "Limit", "derive", "without_limits"]

# The largest formula that SymPy derives in seconds; `takes_seconds` has the measurement.
_MAX_QUICK_OPERATIONS, _MAX_QUICK_KINKS, _MAX_QUICK_POWER, _MAX_QUICK_NUMBER = 10, 2, 4, 100


@public
def derive(kernel: str | Kernel) -> Derivation:
    """Derive S = E|a|/√(E a²) of a kernel, with its moments, limits and leading asymptotics.

    Args:
        kernel: a built-in kernel's name, a formula of the score s, or any `Kernel`. Kernels with a
            name and short formulas take seconds at most; products of many kinks may take hours.

    Returns:
        The derivation; repeated calls return the same object.

    Raises:
        InputError: no kernel of that name.
        NoClosedForm: which step failed and on what; use quadrature then.
    """
    if isinstance(kernel, Row):
        fix = "derive takes a kernel with Gaussian scores; use evaluate for a row"
        raise InputError("kernel", kernel, fix)
    return _derive(elementwise(kernel))


def without_limits(kernel: str | Kernel) -> Derivation:
    """Derive as `derive` does, but without the limits, which take most of the time.

    Args:
        kernel: as in `derive`; only kernels of the score have limits that take long.

    Raises:
        InputError: no kernel of that name.
        NoClosedForm: which step failed and on what.
    """
    record = elementwise(kernel)
    return score_kernels.without_limits(record) if record.law is Law.SCORE else _derive(record)


@functools.lru_cache(maxsize=64)
def _derive(kernel: Kernel) -> Derivation:
    """Derive in this process, however long it takes."""
    try:
        if kernel.law is Law.SCORE:
            return score_kernels.derive_scores(kernel)
        if kernel.law is Law.FEATURES:
            return derive_features(kernel)
        return derive_positions(kernel)
    except (InputError, NoClosedForm):
        raise
    except (TypeError, ValueError, ArithmeticError, NotImplementedError, RecursionError) as error:
        # SymPy raises these on numbers that it cannot compare and integrals that it does not know.
        why = " ".join(str(error).split())[:200]
        raise NoClosedForm("the derivation", f"SymPy cannot: {why}") from error


def takes_seconds(kernel: Kernel) -> bool:
    """Return whether a kernel is derived in seconds at most, by the size of its formula.

    It has a name; or a function of the score cannot be expanded, which is found at once; or the
    formula is a short one in small rational numbers, whose kinks are the zeros of polynomials. Of
    180 random formulas with a closed form those took 4 s at most. What took longer had numbers such
    as cosh(1) or 1000, or a kink such as that of min(1/2, sinh(s)): SymPy then factors polynomials
    in towers of algebraic numbers.
    """
    if kernel.law is not Law.SCORE or kernel in known():
        return True
    weight: Expr = kernel.weight
    expandable = (sympy.exp, sympy.sinh, sympy.cosh, *SWITCHES)
    functions = weight.atoms(sympy.Function)
    if any(f.has(s) and not isinstance(f, expandable) for f in functions):
        return True
    switches, powers = weight.atoms(*SWITCHES), weight.atoms(sympy.Pow)
    constants = functions | powers | weight.atoms(sympy.NumberSymbol)
    return (
        sympy.count_ops(weight) <= _MAX_QUICK_OPERATIONS
        and len(switches) <= _MAX_QUICK_KINKS
        and all(q.is_polynomial(s) for switch in switches for q in switching_quantities(switch))
        and all(not p.exp.is_number or abs(p.exp) <= _MAX_QUICK_POWER for p in powers)
        and all(max(abs(x.p), x.q) <= _MAX_QUICK_NUMBER for x in weight.atoms(sympy.Rational))
        and all(constant.has(s) for constant in constants)
    )
