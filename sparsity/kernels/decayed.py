"""Pure decay, the skeleton of retention: a_j = λ^(n−j)."""

from sparsity.kernels.base import Kernel, Law
from sparsity.kernels.parameters import DECAY, LENGTH
from sparsity.kernels.symbols import decay, j, n

decayed = Kernel(
    name="decayed",
    title="exponential decay",
    law=Law.POSITION,
    weight=decay ** (n - j),
    parameters=(DECAY, LENGTH),
    source="Su (2023), kexue.fm/archives/9889, linear attention with decay",
)
