"""Softmax attention before normalisation: a = e^s."""

from dataclasses import replace

from sympy import exp as e

from sparsity.kernels.base import Kernel, Law
from sparsity.kernels.parameters import BETA, GAMMA
from sparsity.kernels.symbols import s

# S does not depend on β (a factor e^β cancels), so β may be left out.
exp = Kernel(
    name="exp",
    title="softmax",
    law=Law.SCORE,
    weight=e(s),
    parameters=(replace(BETA, default=0.0), GAMMA),
    source="Su (2023), kexue.fm/archives/9889, standard attention",
)
