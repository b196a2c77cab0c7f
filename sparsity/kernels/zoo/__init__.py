"""The zoo: elementwise kernels beside those of the article, and the explicit tuple of them.

Every instrument takes one by its name. The reference grid, the figures and the report show those of
the article only.
"""

from __future__ import annotations

from sparsity.kernels.base import Kernel
from sparsity.kernels.zoo.absolute import absolute
from sparsity.kernels.zoo.cosh import cosh
from sparsity.kernels.zoo.elu import elu, elu1
from sparsity.kernels.zoo.gelu import gelu
from sparsity.kernels.zoo.powers import power, power2, power4
from sparsity.kernels.zoo.relu import relu, relu3
from sparsity.kernels.zoo.sigmoid import sigmoid
from sparsity.kernels.zoo.silu import silu
from sparsity.kernels.zoo.softpick import softpick
from sparsity.kernels.zoo.softplus import softplus
from sparsity.kernels.zoo.taylor import taylor, taylor2, taylor4
from sparsity.kernels.zoo.threshold import threshold

__all__ = [
    "ZOO",
    "absolute",
    "cosh",
    "elu",
    "elu1",
    "gelu",
    "power",
    "power2",
    "power4",
    "relu",
    "relu3",
    "sigmoid",
    "silu",
    "softpick",
    "softplus",
    "taylor",
    "taylor2",
    "taylor4",
    "threshold",
]

ZOO: tuple[Kernel, ...] = (
    relu,
    relu3,
    power2,
    power4,
    absolute,
    cosh,
    taylor2,
    taylor4,
    threshold,
    softpick,
    softplus,
    sigmoid,
    elu1,
    elu,
    gelu,
    silu,
)


def __dir__() -> list[str]:
    return sorted(__all__)
