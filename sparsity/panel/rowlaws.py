"""The row laws on offer: the steps that each makes, and its limit form where that is at hand.

A limit form here is composed of closed forms that `evaluate` gives; `finite_rows.limit` is the
slower law that it is tested against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsity.kernels import Kernel, exp
from sparsity.rows.steps import Alibi, Decay, LogScaled, RowLaw, Sink, Spherical, Step, Window
from sparsity.theory.evaluation import evaluate

__all__ = ["ALL", "Rows", "named"]

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Rows:
    """A row law that can be chosen.

    Args:
        name: identifier.
        title: as shown.
        controls: the parameters it has besides β, γ and n.
        steps: values -> the steps of the `RowLaw`.
        closed: (kernel, values) -> (β, γ, log factor on S of f), arrays; None where S has no form
            made of closed ones.
        longest: row length up to which the exact law is quick enough to fill in.
        kernels: those whose exact law is quick enough; empty for all.
        code: the steps in Python, with the values by name.
        biased: whether the law starts from the bias β; otherwise the steps bring it.
    """

    name: str
    title: str
    controls: tuple[str, ...]
    steps: Callable[[Values], tuple[Step, ...]]
    closed: Callable[[Kernel, Values], tuple[Any, Any, Any] | None]
    longest: float = 1e12
    kernels: tuple[Kernel, ...] = ()
    code: str = ""
    biased: bool = True

    def law(self, values: Values) -> RowLaw:
        """The `RowLaw` at the values."""
        beta = float(values["beta"]) if self.biased else 0.0
        return RowLaw(beta, float(values["gamma"]), self.steps(values))

    def quick(self, kernel: Kernel, length: float) -> bool:
        """Whether the exact law can be filled in while one waits."""
        return length <= self.longest and (not self.kernels or kernel in self.kernels)


def _plain(kernel: Kernel, v: Values) -> tuple[Any, Any, Any]:
    return v["beta"], v["gamma"], 0.0


def _decayed(kernel: Kernel, v: Values) -> tuple[Any, Any, Any]:
    factor = evaluate("decayed", decay=v["decay"], length=v["length"])
    return v["beta"], v["gamma"], factor.log_S  # of independent factors, S multiplies


def _sloped(kernel: Kernel, v: Values) -> tuple[Any, Any, Any] | None:
    if kernel.weight != exp.weight:
        return None
    decay = np.maximum(np.exp(-np.asarray(v["slope"])), 1e-300)  # e^(s − slope·m): a decay of e^s
    return v["beta"], v["gamma"], evaluate("decayed", decay=decay, length=v["length"]).log_S


def _windowed(kernel: Kernel, v: Values) -> tuple[Any, Any, Any]:
    share = np.minimum(np.divide(v["window"], v["length"]), 1.0)  # of the row that is in sight
    return v["beta"], v["gamma"], 0.5 * np.log(share)


def _scaled(kernel: Kernel, v: Values) -> tuple[Any, Any, Any]:
    factor = np.asarray(v["scale"]) * np.log(v["length"])
    return factor * v["beta"], factor * v["gamma"], 0.0


def _none(kernel: Kernel, v: Values) -> None:
    return None


def _rope(v: Values) -> tuple[Step, ...]:
    """Key means along the query: β cos(mθ) averaged over the planes of a random direction."""
    from sparsity.figures.collinear import turned_query
    from sparsity.finite.rotary_laws import Rope

    dim = int(v["dim"])
    query = turned_query(dim) * (v["gamma"] / dim**0.5)
    return (Rope(query, query * (v["beta"] / v["gamma"] ** 2), 1.0),)


ALL: tuple[Rows, ...] = (
    Rows("iid", "independent scores", (), lambda v: (), _plain),
    Rows(
        "decay",
        "decay λ^(n−j)",
        ("decay",),
        lambda v: (Decay(float(v["decay"])),),
        _decayed,
        longest=8192,
        code="Decay({decay})",
    ),
    Rows(
        "alibi",
        "ALiBi",
        ("slope",),
        lambda v: (Alibi(float(v["slope"])),),
        _sloped,
        longest=8192,
        kernels=(exp,),
        code="Alibi({slope})",
    ),
    Rows(
        "window",
        "sliding window",
        ("window",),
        lambda v: (Window(int(v["window"])),),
        _windowed,
        code="Window({window})",
    ),
    Rows(
        "scaled",
        "log-n scaling (SSMax)",
        ("scale",),
        lambda v: (LogScaled(float(v["scale"])),),
        _scaled,
        code="LogScaled({scale})",
    ),
    Rows(
        "sink",
        "a sink at the first token",
        ("logit",),
        lambda v: (Sink(float(v["logit"])),),
        _none,
        code="Sink({logit})",
    ),
    Rows(
        "sphere",
        "QK-norm, keys on a sphere",
        ("dim",),
        lambda v: (Spherical(int(v["dim"])),),
        _none,
        code="Spherical({dim})",
    ),
    Rows(
        "rope",
        "RoPE, key mean along the query",
        ("dim",),
        _rope,
        _none,
        longest=8192,
        kernels=(exp,),
        code="Rope(query, query * {beta} / {gamma} ** 2, 1.0)",
        biased=False,
    ),
)


def named(name: str) -> Rows:
    """The row law of that name."""
    return next(rows for rows in ALL if rows.name == name)
