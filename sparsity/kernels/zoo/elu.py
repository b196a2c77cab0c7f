"""The exponential linear unit, which is signed, and the same plus one, which is positive."""

from sympy import Piecewise
from sympy import exp as e

from sparsity.kernels.base import score_kernel
from sparsity.kernels.symbols import elu as unit
from sparsity.kernels.symbols import s

elu = score_kernel(
    "elu",
    unit(s),
    title="ELU",
    source="Clevert et al. (2015), arXiv:1511.07289",
)
# Not elu(s) + 1, which would subtract 1 from e^s and add it again.
elu1 = score_kernel(
    "elu+1",
    Piecewise((s + 1, s > 0), (e(s), True)),
    title="ELU plus one",
    source="Katharopoulos et al. (2020), arXiv:2006.16236, as a feature map; here of the score",
)
