"""The kernels of the article, Su (2023), kexue.fm/archives/9889."""

from dataclasses import replace

import sympy
from sympy import Max, Sum

from sparsity.kernels.base import Kernel, Law
from sparsity.kernels.parameters import BETA, DECAY, DIM, GAMMA, LENGTH, QUERY, RATIO
from sparsity.kernels.symbols import d, decay, i, j, k, n, q, s

# Softmax before normalisation. S does not depend on β (a factor e^β cancels), so β may be left out.
exp = Kernel(
    name="exp",
    title="softmax",
    law=Law.SCORE,
    weight=sympy.exp(s),
    parameters=(replace(BETA, default=0.0), GAMMA),
    source="Su (2023), kexue.fm/archives/9889, standard attention",
)

relu2 = Kernel(
    name="relu2",
    title="squared ReLU",
    law=Law.SCORE,
    weight=Max(s, 0) ** 2,
    parameters=(BETA, GAMMA),
    source="Su (2023), kexue.fm/archives/9889, the gated attention unit's relu²",
)

identity = Kernel(
    name="identity",
    title="signed linear",
    law=Law.SCORE,
    weight=s,
    parameters=(BETA, GAMMA),
    source="Su (2023), kexue.fm/archives/9889, linear attention without activation",
)

# q̃ᵀk̃ with q̃ = g(q) ≥ 0 and k̃ = h(k) ≥ 0. Only the mean and the covariance of the features k̃
# enter S: no Gaussian assumption.
nonnegative = Kernel(
    name="nonnegative",
    title="nonnegative linear",
    law=Law.FEATURES,
    weight=Sum(q[i] * k[i], (i, 1, d)),
    parameters=(RATIO, DIM, QUERY),
    source="Su (2023), kexue.fm/archives/9889, linear attention with nonnegative features",
)

# Pure decay, the skeleton of retention.
decayed = Kernel(
    name="decayed",
    title="exponential decay",
    law=Law.POSITION,
    weight=decay ** (n - j),
    parameters=(DECAY, LENGTH),
    source="Su (2023), kexue.fm/archives/9889, linear attention with decay",
)
