"""Linear attention without an activation, signed: a = s."""

from sparsity.kernels.base import Kernel, Law
from sparsity.kernels.parameters import BETA, GAMMA
from sparsity.kernels.symbols import s

identity = Kernel(
    name="identity",
    title="signed linear",
    law=Law.SCORE,
    weight=s,
    parameters=(BETA, GAMMA),
    source="Su (2023), kexue.fm/archives/9889, linear attention without activation",
)
