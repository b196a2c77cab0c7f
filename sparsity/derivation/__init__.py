"""From a kernel's definition to its moments, S, limits and leading asymptotics, with SymPy.

Nothing here is typed in: each result is integrated or summed from `Kernel.weight` under
`Kernel.law`, and every antiderivative is differentiated back before it is used.

    Kernel ─┬─ of a score ─> scores: pieces ─> moments ─> S ─> asymptotics: limits ─┐
            ├─ of features ─> sums: mean and covariance ────────────────────────────┼─> Derivation
            └─ of a position ─> sums: geometric ────────────────────────────────────┘

SymPy has no limit on time of its own. Where one is asked for, what may take long is derived in a
process that can be ended.
"""

from __future__ import annotations

import functools
import math
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import replace

import sympy
from sympy import Expr

from sparsity.checks import check_bound
from sparsity.derivation import scores
from sparsity.derivation.derivation import Case, Derivation, Limit
from sparsity.derivation.pieces import SWITCHES, switching_quantities
from sparsity.derivation.sums import derive_features, derive_positions
from sparsity.errors import InputError, NoClosedForm
from sparsity.kernels import Kernel, Law, elementwise, known
from sparsity.kernels.symbols import s
from sparsity.rows.row import Row

__all__ = ["Case", "Derivation", "Limit", "derive", "without_limits"]

# The largest formula that SymPy derives in seconds; `is_quickly_derived` has the measurement.
# Higher limits spare more processes, and risk a formula that runs on in this one, where nothing can
# end it.
_MAX_QUICK_OPERATIONS, _MAX_QUICK_KINKS, _MAX_QUICK_POWER, _MAX_QUICK_NUMBER = 10, 2, 4, 100


def derive(kernel: str | Kernel, *, max_seconds: float = math.inf) -> Derivation:
    """Derive S = E|a|/√(E a²) of a kernel, with its moments, limits and leading asymptotics.

    Args:
        kernel: a built-in kernel's name, a formula of the score s, or any `Kernel`.
        max_seconds: a limit that you set, > 0; without one no clock is read. Kernels with a name
            and short formulas take seconds at most, and are not timed; products of many kinks may
            take hours.

    Returns:
        The derivation; repeated calls return the same object.

    Raises:
        InputError: no kernel of that name, or a bad limit.
        NoClosedForm: which step failed and on what, or that it took too long; use quadrature then.
    """
    if isinstance(kernel, Row):
        fix = "derive takes a kernel with Gaussian scores; use evaluate for a row"
        raise InputError("kernel", kernel, fix)
    record = elementwise(kernel)
    max_seconds = check_bound("max_seconds", max_seconds, "must be > 0", lambda x: x > 0)
    if max_seconds > threading.TIMEOUT_MAX or takes_seconds(record):
        return _derive(record)
    return _derive_in_time(record, max_seconds)


def without_limits(kernel: str | Kernel) -> Derivation:
    """Derive as `derive` does, but without the limits, which take most of the time.

    Args:
        kernel: as in `derive`; only kernels of the score have limits that take long.

    Raises:
        InputError: no kernel of that name.
        NoClosedForm: which step failed and on what.
    """
    record = elementwise(kernel)
    return scores.without_limits(record) if record.law is Law.SCORE else _derive(record)


@functools.lru_cache(maxsize=64)
def _derive(kernel: Kernel) -> Derivation:
    """Derive in this process, however long it takes."""
    try:
        if kernel.law is Law.SCORE:
            return scores.derive_scores(kernel)
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
    """Return whether a kernel is derived in seconds at most, by the size of its formula."""
    named = kernel.law is not Law.SCORE or kernel in known()
    return named or is_quickly_derived(kernel.weight)


def is_quickly_derived(weight: Expr) -> bool:
    """Return whether SymPy derives it in seconds at most: then no process needs to be started.

    Either a function of the score cannot be expanded, which is found at once; or the formula is a
    short one in small rational numbers, whose kinks are the zeros of polynomials. Of 180 random
    formulas with a closed form those took 4 s at most. What took longer had numbers such as cosh(1)
    or 1000, or a kink such as that of min(1/2, sinh(s)): SymPy then factors polynomials in towers
    of algebraic numbers.
    """
    expandable = (sympy.exp, sympy.sinh, sympy.cosh, *SWITCHES)
    functions = weight.atoms(sympy.Function)
    if any(f.has(s) and not isinstance(f, expandable) for f in functions):
        return True
    switches, powers = weight.atoms(*SWITCHES), weight.atoms(sympy.Pow)
    constants = functions | powers | weight.atoms(sympy.NumberSymbol)
    return (
        sympy.count_ops(weight) <= _MAX_QUICK_OPERATIONS
        and len(switches) <= _MAX_QUICK_KINKS
        and all(q.is_polynomial(s) for each in switches for q in switching_quantities(each))
        and all(not p.exp.is_number or abs(p.exp) <= _MAX_QUICK_POWER for p in powers)
        and all(max(abs(x.p), x.q) <= _MAX_QUICK_NUMBER for x in weight.atoms(sympy.Rational))
        and all(each.has(s) for each in constants)
    )


@functools.lru_cache(maxsize=64)
def _derive_in_time(kernel: Kernel, max_seconds: float) -> Derivation:
    """Derive in a process of its own, which is ended when its time is over.

    Args:
        kernel: of the score.
        max_seconds: the longest it may take, once it is ready.
    """
    command = [sys.executable, "-c", "from sparsity import derivation; derivation._answer()"]
    path = os.pathsep.join(each or os.getcwd() for each in sys.path)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": path},
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # "ready": importing SymPy is not part of the time allowed
            said, _ = process.communicate(pickle.dumps(kernel), timeout=max_seconds)
        except subprocess.TimeoutExpired:
            reason = f"it takes longer than {max_seconds:g} s (max_seconds allows more)"
            raise NoClosedForm("the derivation", reason) from None
        finally:
            process.kill()
    if not said:
        raise NoClosedForm("the derivation", "its process ended, perhaps for lack of memory")
    found = pickle.loads(said)
    if isinstance(found, Exception):
        raise found
    return replace(found, kernel=kernel)  # what came back holds a pickled copy


def _answer() -> None:
    """Derive the kernel that `_derive_in_time` sends, in its process."""
    sys.stdout.buffer.write(b"ready\n")
    sys.stdout.buffer.flush()
    kernel = pickle.load(sys.stdin.buffer)
    try:
        found: Derivation | Exception = _derive(kernel)
    except (InputError, NoClosedForm) as error:
        found = error
    pickle.dump(found, sys.stdout.buffer)


def __dir__() -> list[str]:
    return sorted(__all__)
