"""Taylor polynomials of softmax's exponential: a = Σ_(r≤p) s^r/r!, positive for even p."""

from sympy import Add, factorial

from sparsity.arguments import whole
from sparsity.kernels.base import Kernel, score_kernel
from sparsity.kernels.symbols import s

_LARGEST = 64  # exponent, as in a formula that is typed


def taylor(degree: int, source: str = "Taylor series of e^s") -> Kernel:
    """The weight of Taylor features of degree p.

    Raises:
        InputError: a degree that is not a whole number from 1 to 64.
    """
    degree = whole("degree", degree, 1, _LARGEST)
    weight = Add(*(s**r / factorial(r) for r in range(degree + 1)))
    return score_kernel(
        f"taylor{degree}", weight, title=f"Taylor of degree {degree}", source=source
    )


taylor2 = taylor(2, "Arora et al. (2024), arXiv:2402.18668, second-order Taylor features")
taylor4 = taylor(4, "Keles et al. (2022), arXiv:2209.04881, Taylor series of any degree")
