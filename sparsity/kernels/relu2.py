"""Squared-ReLU attention of the gated attention unit: a = max(s, 0)²."""

from sympy import Max

from sparsity.kernels.base import Kernel, Law
from sparsity.kernels.parameters import BETA, GAMMA
from sparsity.kernels.symbols import s

relu2 = Kernel(
    name="relu2",
    title="squared ReLU",
    law=Law.SCORE,
    weight=Max(s, 0) ** 2,
    parameters=(BETA, GAMMA),
    source="Su (2023), kexue.fm/archives/9889, the gated attention unit's relu²",
)
