"""Capacity: among how many other keys a row still reads out the needle's value.

Keys are k ~ N(0, I) in R^d, and the query of length t points along the needle, a key of the length
√d that it expects: the needle scores m = t√d, and the others N(0, t²). Signal and noise are equal,
SNR = 1, at n = a*²/E a² other keys, as long as Σ a² averages itself:

    identity d;   max(s, 0)^p  2d^p/(2p − 1)!!;   exp  e^(2t√d − 2t²), at most e^(d/2) at t = √d/2.

These are the capacities of associative memories: Krotov & Hopfield (2016), arXiv:1606.01164;
Demircigil et al. (2017), arXiv:1702.01929; Ramsauer et al. (2020), arXiv:2008.02217.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sparsity import kernels
from sparsity.arguments import number, whole
from sparsity.errors import InputError
from sparsity.kernels import Kernel, Law
from sparsity.kernels.numeric.points import EPS
from sparsity.limit.scores import log_moments


class Capacity(NamedTuple):
    """How many other keys there are where SNR = 1.

    Args:
        value: n, of other keys.
        log_value: ln n.
        error_bound: on the relative error of n.
    """

    value: float
    log_value: float
    error_bound: float


def needle_capacity(kernel: str | Kernel, *, dim: int, query: float = 1.0) -> Capacity:
    """Return the capacity of a kernel, n = f(t√d)²/E f(s)² with s ~ N(0, t²).

    Args:
        kernel: a function of a score, by name or as a `Kernel`.
        dim: d ≥ 1.
        query: t > 0, the length of the query.

    Raises:
        InputError: another kernel, a bad value, or an infinite moment.
    """
    record = kernels.elementwise(kernels.named(kernel))
    if record.law is not Law.SCORE:
        raise InputError("kernel", record.name, "needs a kernel that is a function of the score")
    d = whole("dim", dim, 1)
    t = number("query", query, "give one number > 0", lambda x: x > 0)
    (needle, off), *_ = log_moments(record, (2.0,), t * math.sqrt(d), 0.0)
    (noise, more), *_ = log_moments(record, (2.0,), 0.0, t)
    if needle == -math.inf:
        raise InputError("dim", dim, f"{record.name} gives the needle no weight there")
    log_value = needle - noise
    with np.errstate(over="ignore"):
        value = float(np.exp(log_value))
    return Capacity(value, log_value, off + more + 4 * EPS * (1 + abs(log_value)))
