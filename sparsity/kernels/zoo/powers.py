"""Even powers: a = s^p. At β = 0, S² = Γ((p+1)/2)²/(√π Γ(p+½)), about √2·2^(−p), whatever γ."""

from sparsity.arguments import whole
from sparsity.errors import InputError
from sparsity.kernels.base import Kernel, score_kernel
from sparsity.kernels.symbols import s

_LARGEST = 64  # exponent, as in a formula that is typed
_SOURCE = "Kacham et al. (2023), arXiv:2310.01655, polynomial attention"


def power(degree: int) -> Kernel:
    """The weight s^p of an even degree p.

    Raises:
        InputError: a degree that is not whole, even and ≥ 2.
    """
    degree = whole("degree", degree, 2, _LARGEST)
    if degree % 2:
        raise InputError("degree", degree, "must be even")
    return score_kernel(
        f"power{degree}", s**degree, title=f"power of degree {degree}", source=_SOURCE
    )


power2, power4 = power(2), power(4)
