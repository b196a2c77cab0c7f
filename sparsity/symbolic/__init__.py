"""From a kernel's definition to its moments, S, limits and leading asymptotics, with SymPy.

Nothing here is typed in: each result is integrated or summed from `Kernel.weight` under
`Kernel.law`, and every antiderivative is differentiated back before it is used.
"""

from __future__ import annotations

import functools

from sparsity.kernels import Kernel, Law, named
from sparsity.symbolic.derivation import Case, Derivation, Limit

__all__ = ["Case", "Derivation", "Limit", "derive"]


def derive(kernel: str | Kernel) -> Derivation:
    """Derive S = E|a|/√(E a²) of a kernel, with its moments, limits and leading asymptotics.

    Args:
        kernel: a built-in kernel's name, or any `Kernel` (see `score_kernel`).

    Returns:
        The derivation; repeated calls return the same object.

    Raises:
        InputError: no kernel of that name.
        NoClosedForm: which step failed and on what; quadrature is the route then.
    """
    return _derive(named(kernel))


@functools.lru_cache(maxsize=64)
def _derive(kernel: Kernel) -> Derivation:
    if kernel.law is Law.SCORE:
        from sparsity.symbolic.scores import derive_scores

        return derive_scores(kernel)
    if kernel.law is Law.FEATURES:
        from sparsity.symbolic.features import derive_features

        return derive_features(kernel)
    from sparsity.symbolic.positions import derive_positions

    return derive_positions(kernel)
