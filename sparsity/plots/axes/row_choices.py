"""The row laws on offer: one for each step, and those of the rows that the panel was opened with.

What a step needs to be shown well is kept here by its name; a step that is not here is shown with a
slider around its example, and its limits are computed by quadrature. A limit form here is composed
of closed forms that `evaluate` gives; its form for any row is the slower law that it is tested
against.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels import Kernel, RowMap, exp
from sparsity.limit.evaluation import evaluate
from sparsity.plots.axes.controls import CONTROLS, control_of_step
from sparsity.rows import steps as row_steps
from sparsity.rows.classes import ANY_LENGTH, classify_tokens
from sparsity.rows.row import Row
from sparsity.rows.steps import FloorLog, LogLength, LongRope, Rope, ScalableSoftmax, Yarn
from sparsity.rows.tokens import Step

Values = Mapping[str, Any]
Form = Callable[[Kernel, Values], tuple[Any, Any, Any] | None]


@dataclass(frozen=True)
class Rows:
    """A row law that can be chosen.

    Args:
        name: identifier.
        title: as shown.
        controls: the parameters it has besides β, γ and n.
        steps: values -> the steps of the row.
        closed: (kernel, values) -> (β, γ, log factor on S of f), arrays; None where S has no form
            made of closed ones.
        longest: row length up to which the exact law is quick enough to fill in.
        kernels: those whose exact law is quick enough; empty for all.
        biased: whether the law starts from the bias β; otherwise the steps bring it.
        level: whether a bias moves the scores of all tokens alike, or multiplies them alike.
        beside: whether a weight that is no token stands beside the row; `closed` is without it.
    """

    name: str
    title: str
    controls: tuple[str, ...]
    steps: Callable[[Values], tuple[Step, ...]]
    closed: Form | None = None
    longest: float = 8192
    kernels: tuple[Kernel, ...] = ()
    biased: bool = True
    level: bool = True
    beside: bool = False

    def row(self, kernel: Kernel, values: Values) -> Row:
        """Return the row at the values."""
        beta = float(values["beta"]) if self.biased else 0.0
        return Row(kernel, beta=beta, gamma=float(values["gamma"]), steps=self.steps(values))

    def quick(self, kernel: Kernel | RowMap, length: float) -> bool:
        """Return whether the exact law can be filled in while one waits."""
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
    # S = ‖a‖₁/(√n ‖a‖₂): both norms are of the w tokens in sight, and √n is of them all.
    share = np.minimum(np.divide(v["window"], v["length"]), 1.0)  # of the row that is in sight
    return v["beta"], v["gamma"], 0.5 * np.log(share)


def _tempered(rule: type[Any]) -> Form:
    """Return the form of a temperature: β and γ times its factor, of the number under control."""
    # The example tells the type of the field: a control gives floats, a trained length is whole.
    kind, name = type(rule.example[0]), control_of_step(rule).name

    def factor_at(number: Any, length: Any) -> float:
        return rule(kind(number)).factor(int(length))

    def closed(kernel: Kernel, v: Values) -> tuple[Any, Any, Any]:
        factor = np.vectorize(factor_at, otypes=[float])(v[name], v["length"])
        return factor * v["beta"], factor * v["gamma"], 0.0

    return closed


def _raised(kernel: Kernel, v: Values) -> tuple[Any, Any, Any]:
    return v["beta"] + np.asarray(v["offset"]) * np.log(v["length"]), v["gamma"], 0.0


def _rope(v: Values) -> tuple[Step, ...]:
    """Return RoPE with key means along a random query: β cos(mθ) averaged over its planes."""
    # A key mean μ = q·β/γ² has q·μ = β at distance 0, as ‖q‖ = γ. Keys of unit spread then have
    # scores of spread γ. The seed is fixed: the same curve each time.
    query = np.random.default_rng(0).standard_normal(int(v["dim"]))
    query *= v["gamma"] / np.linalg.norm(query)
    return (Rope(query, query * (v["beta"] / v["gamma"] ** 2), 1.0),)


_IID = Rows("iid", "independent scores", (), lambda v: (), _plain, longest=1e12)
_ROPE = Rows(
    Rope.name,
    "RoPE, key mean along the query",
    ("dim",),
    _rope,
    kernels=(exp,),
    biased=False,
    level=False,
)

# How a step is shown: its title, and as in `Rows`. Its first field has a control, its other fields
# have their defaults.
_SHOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "decay": ("decay λ^(n−j)", {"closed": _decayed}),
    "alibi": ("ALiBi", {"closed": _sloped, "kernels": (exp,)}),
    "window": ("sliding window", {"closed": _windowed, "longest": 1e12}),
    "chunk": ("chunked attention", {"longest": 1e12}),
    **{
        rule.name: (title, {"closed": _tempered(rule), "longest": 1e12})
        for rule, title in (
            (ScalableSoftmax, "scalable softmax, s·ln n"),
            (FloorLog, "floor-log temperature (Llama 4)"),
            (LogLength, "log-n temperature"),
            (Yarn, "YaRN's temperature"),
            (LongRope, "LongRoPE's temperature"),
        )
    },
    "length-bias": ("a bias that grows like ln n", {"closed": _raised, "longest": 1e12}),
    "sink": ("a sink at the first token", {"longest": 1e12, "level": False}),
    "sink-logit": (
        "a sink logit beside the row",
        {"closed": _plain, "longest": 1e12, "level": False, "beside": True},
    ),
    "gate": ("a gate on the output", {"closed": _plain, "longest": 1e12}),
    "needle": ("a needle among the keys", {"longest": 1e12, "level": False}),
    "needle-above": ("a needle by its margin", {"longest": 1e12, "level": False}),
    "qk-norm": ("QK-norm, keys on a sphere", {"longest": 1e12}),
}


def _of_step(step: type[Any]) -> Rows:
    """Return the law of one step, whose first field has a control."""
    title, how = _SHOWN.get(step.name, (step.name, {"level": False}))
    control, kind = control_of_step(step).name, type(step.example[0])
    others = () if step.name in _SHOWN else step.example[1:]

    def steps(v: Values) -> tuple[Step, ...]:
        return (step(kind(v[control]), *others),)

    return Rows(step.name, title, (control,), steps, **how)


def of_steps(steps: tuple[type[Any], ...] = row_steps.ALL) -> tuple[Rows, ...]:
    """Return the laws of these steps."""
    laws = [_IID]
    for step in steps:
        if step is Rope:
            laws.append(_ROPE)
        elif step in row_steps.typed(steps).values():
            laws.append(_of_step(step))
    return tuple(laws)


ALL: tuple[Rows, ...] = of_steps()


@functools.lru_cache(maxsize=64)
def marks(rows: Rows) -> frozenset[str]:
    """Return what there is in its rows besides plain tokens: a "sink", the "needle"."""
    # A row is made and looked at: what a step adds is not declared anywhere.
    start = {name: control.start for name, control in CONTROLS.items()}
    given = classify_tokens(rows.row(exp, start), ANY_LENGTH)
    return frozenset(who for who in ("sink", "needle") if given.of(who).any())


def named(name: str, laws: tuple[Rows, ...] = ALL) -> Rows:
    """Return the row law of that name."""
    return next(rows for rows in laws if rows.name == name)


def of_row(row: Row) -> tuple[Rows, dict[str, float]]:
    """Return the law of a row's steps, and the values of its controls.

    A step that a control can move, and no other step of the row shares, is moved by it; the others
    stay as they are. One step alone is the law on offer.

    Raises:
        InputError: a row of arrays, whose length and spreads no control can move.
    """
    if row.length is not None:
        fix = "its tokens have their own beta and gamma, which no axis moves; use exact or estimate"
        raise InputError("row", row, fix)
    # A control moves one step only: a second window keeps its size while the first is moved.
    values: dict[str, float] = {}
    parts: list[Callable[[Values], tuple[Step, ...]]] = []
    laws: list[Rows] = []
    for step in row.steps:
        law = next((law for law in ALL if law.name == step.name and law is not _ROPE), None)
        control = law.controls[0] if law else ""
        given: Any = step
        value: Any = getattr(given, fields(given)[0].name) if law else None
        if law and control not in values and law.steps({control: value}) == (given,):
            values[control] = float(value)
            parts.append(law.steps)
            laws.append(law)
        else:
            parts.append(lambda v, step=step: (step,))
    if not parts:
        return _IID, {}
    if len(parts) == len(laws) == 1:
        return laws[0], values
    name = " ".join(row.described()["steps"])
    slow = any(law.kernels for law in laws) or len(laws) < len(parts)
    steps = lambda v: tuple(step for part in parts for step in part(v))  # noqa: E731
    level = all(law.level for law in laws) and len(laws) == len(parts)
    law = Rows(name, name, tuple(values), steps, kernels=(exp,) if slow else (), level=level)
    return law, values
