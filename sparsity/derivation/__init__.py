"""From a kernel's definition to its moments, S, limits and leading asymptotics, with SymPy.

Nothing here is typed in: each result is integrated or summed from `Kernel.weight` under
`Kernel.law`, and every antiderivative is differentiated back before it is used.
"""

from __future__ import annotations

import functools

from sparsity.arguments import bound
from sparsity.derivation.derivation import Case, Derivation, Limit
from sparsity.derivation.patience import within
from sparsity.errors import InputError, NoClosedForm
from sparsity.kernels import Kernel, Law, elementwise
from sparsity.rows.row import Row

__all__ = ["Case", "Derivation", "Limit", "derive", "without_limits"]


def derive(kernel: str | Kernel, *, max_seconds: float = 60.0) -> Derivation:
    """Derive S = E|a|/√(E a²) of a kernel, with its moments, limits and leading asymptotics.

    Args:
        kernel: a built-in kernel's name, a formula of the score s, or any `Kernel`.
        max_seconds: the longest it may take, > 0; products of many kinks may take hours.

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
    max_seconds = bound("max_seconds", max_seconds, "must be > 0", lambda x: x > 0)
    return within(max_seconds, lambda: _derive(record))


def without_limits(kernel: str | Kernel) -> Derivation:
    """As `derive`, but `limits` may be empty: of a kernel of the score they take most of the time.

    Args:
        kernel: as `derive` has it.

    Raises:
        InputError: no kernel of that name.
        NoClosedForm: which step failed and on what.
    """
    record = elementwise(kernel)
    if record.law is not Law.SCORE:
        return _derive(record)
    from sparsity.derivation import scores

    return scores.without_limits(record)


@functools.lru_cache(maxsize=64)
def _derive(kernel: Kernel) -> Derivation:
    try:
        return _derived(kernel)
    except (InputError, NoClosedForm):
        raise
    except (TypeError, ValueError, ArithmeticError, NotImplementedError, RecursionError) as error:
        # SymPy's, on numbers that it cannot compare and integrals that it has not
        raise NoClosedForm(
            "the derivation", f"SymPy cannot: {' '.join(str(error).split())[:200]}"
        ) from error


def _derived(kernel: Kernel) -> Derivation:
    if kernel.law is Law.SCORE:
        from sparsity.derivation.scores import derive_scores

        return derive_scores(kernel)
    if kernel.law is Law.FEATURES:
        from sparsity.derivation.features import derive_features

        return derive_features(kernel)
    from sparsity.derivation.positions import derive_positions

    return derive_positions(kernel)
