"""The parameters of the kernels: symbol, meaning, domain, and the check at the edge."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, SupportsFloat, TypedDict, TypeVar

import numpy as np
from sympy import Symbol

from sparsity.calls import NotTaken, public
from sparsity.checks import Numbers, as_float64
from sparsity.errors import InputError
from sparsity.kernels import queries, symbols

_TINY = float(np.finfo(np.float64).tiny)  # below, numbers lose digits and 1/x is none


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    Args:
        name: the keyword, and the command line's option.
        meaning: what it is, in words.
        domain: the admissible set, as printed in errors.
        admits: elementwise test of the domain on a float64 array.
        symbol: the SymPy symbol, None for a choice by name.
        integer: whether values must be whole numbers.
        default: the value when not given; None makes the parameter required.
    """

    name: str
    meaning: str
    domain: str
    admits: Callable[[np.ndarray], np.ndarray]
    symbol: Symbol | None = None
    integer: bool = False
    default: float | None = None

    def __repr__(self) -> str:
        return f"Parameter({self.name!r}: {self.meaning}, {self.domain})"

    def check(self, value: Any) -> Any:
        """Return `value` as a float64 array inside the domain (a choice: as its name).

        Raises:
            InputError: not numeric, not finite, not whole where it must be, outside the domain, or
                a scale below the normal numbers.
        """
        if self == QUERY:
            return queries.named(value).name
        array = as_float64(value, self.name, f"give a number: {self.domain}")
        conditions = [(np.isfinite(array), f"must be finite, {self.domain}")]
        if self.integer:
            whole = array == np.floor(array)
            conditions.append((whole, f"must be a whole number {self.domain}"))
        conditions.append((self.admits(array), f"must be {self.domain}"))
        if self.admits is _positive:
            fix = f"is too small for float64; give {_TINY:.2g} or more"
            conditions.append((array >= _TINY, fix))
        for good, fix in conditions:
            if not good.all():
                shown = np.asarray(value)[~good].flat[0] if array.ndim else value
                raise InputError(self.name, shown, fix)
        return array

    def one(self, value: Any) -> float:
        """The one number in the domain that `value` is.

        Raises:
            InputError: several, or as for `check`.
        """
        number = self.check(value)
        if np.ndim(number):
            raise InputError(self.name, value, "give one number")
        return float(number)


# Functions by name, not lambdas: parameters, and kernels with them, can be pickled.
def _count(x: np.ndarray) -> np.ndarray:
    return (x >= 1) & (x <= 2.0**53)  # beyond, float64 has no longer every whole number


def _positive(x: np.ndarray) -> np.ndarray:
    return x > 0


def _nonnegative(x: np.ndarray) -> np.ndarray:
    return x >= 0


def _share(x: np.ndarray) -> np.ndarray:
    return (x > 0) & (x <= 1)


def _fraction(x: np.ndarray) -> np.ndarray:
    return (x >= 0) & (x <= 1)


def _correlation(x: np.ndarray) -> np.ndarray:
    return np.abs(x) <= 1


BETA = Parameter("beta", "bias β = q·μ", "any real number", np.isfinite, symbols.beta, default=0.0)
GAMMA = Parameter("gamma", "spread γ = σ‖q‖", "> 0", _positive, symbols.gamma)
DECAY = Parameter("decay", "decay λ per token", "in (0, 1]", _share, symbols.decay)
LENGTH = Parameter("length", "row length n", ">= 1, at most 2^53", _count, symbols.n, integer=True)
RATIO = Parameter(
    "ratio", "noise-to-signal ratio σ̃/μ̃ of a feature", "> 0", _positive, symbols.ratio
)
DIM = Parameter("dim", "dimension d", ">= 1, at most 2^53", _count, symbols.d, integer=True)
QUERY = Parameter("query", "query family", "|".join(queries.NAMES), np.isfinite)
GAMMA2 = Parameter("gamma2", "spread γ₂ of the second score", "> 0", _positive)
RHO = Parameter("rho", "correlation ρ of the two scores", "in [-1, 1]", _correlation)
MIX = Parameter("mix", "share λ of the second map that is taken off", ">= 0", _nonnegative)
GATE = Parameter("gate", "bias b of a gate σ(b + cε)", "any real number", np.isfinite)
GATE_SPREAD = Parameter("gate_spread", "spread c of a gate's bias", ">= 0", _nonnegative)
SIGMA = Parameter("sigma", "spread σ of an entry of a key", "> 0", _positive)
FEATURES = Parameter("features", "random features m", ">= 1, at most 2^53", _count, integer=True)
WITHIN = Parameter("within", "correlation c of two scores of a block", "in [0, 1]", _fraction)

ALL = (BETA, GAMMA, DECAY, RATIO, DIM, QUERY, LENGTH)
# Of rows as a whole, besides.
OF_MAPS = (GAMMA2, RHO, MIX, GATE, GATE_SPREAD, SIGMA, FEATURES, WITHIN)

One = SupportsFloat | str | None  # a number, or a text of one, as a type checker knows it
Several = One | Numbers  # or many of them
_V = TypeVar("_V")


class Parameters(TypedDict, Generic[_V], total=False):
    """All of these but the length, by name: so a type checker knows a keyword that is misspelt."""

    beta: _V
    gamma: _V
    decay: _V
    ratio: _V
    dim: _V
    query: Any  # a family by name, or features that were measured
    gamma2: _V
    rho: _V
    mix: _V
    gate: _V
    gate_spread: _V
    sigma: _V
    features: _V
    within: _V


_Function = TypeVar("_Function", bound=Callable[..., Any])


def names_parameters(*names: str) -> Callable[[_Function], _Function]:
    """Give a function that takes `**parameters` a signature with their names.

    `help` then shows them and a shell completes them. It is `public`.

    Args:
        *names: of the parameters; none are those of all kernels and rows.
    """
    every = names or tuple(p.name for p in (*ALL, *OF_MAPS))

    def named(function: _Function) -> _Function:
        signature = inspect.signature(function)
        *parameters, rest = signature.parameters.values()
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any")
            for name in every
            if name not in signature.parameters
        ]
        called: Any = public(function, (*every, "steps", "scores"))
        called.__signature__ = signature.replace(parameters=[*parameters, *more, rest])
        return called

    return named


def bound_by_name(
    owner: str, parameters: Sequence[Parameter], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Parameters by name, checked, with their defaults filled in.

    Args:
        owner: whose they are, for messages.
        parameters: what it takes, in order.
        given: values by name, scalars or mutually broadcastable arrays; None is not given.

    Raises:
        InputError: one that it does not take, a missing one, a bad value.
    """
    given = {name: value for name, value in given.items() if value is not None}
    names = [p.name for p in parameters]
    for name, value in given.items():
        if name not in names:
            raise NotTaken(name, value, owner, names)
    bound = {}
    for p in parameters:
        value = given.get(p.name, p.default)
        if value is None:
            raise InputError(p.name, None, f"{owner} needs {p.name} ({p.meaning}), {p.domain}")
        bound[p.name] = p.check(value)
    shapes = {name: np.shape(value) for name, value in bound.items()}
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError:
        *_, last = (name for name, shape in shapes.items() if shape)
        fix = "must broadcast with the others, " + ", ".join(
            f"{name} {shape}" for name, shape in shapes.items() if shape and name != last
        )
        raise InputError(last, f"array of shape {shapes[last]}", fix) from None
    return bound


def one_of_each(
    owner: str, parameters: Sequence[Parameter], more: Sequence[Parameter], given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One value of each parameter, and of those others that were given.

    Args:
        owner: whose they are, for messages.
        parameters: what it takes, in order.
        more: what a row of it takes besides.
        given: values by name.

    Returns:
        The parameters as `bound_by_name` has them, and the others by name.

    Raises:
        InputError: as `bound_by_name`, or more than one value.
    """
    names = {p.name for p in parameters}
    others = [p for p in more if given.get(p.name) is not None and p.name not in names]
    extra = {p.name: p.check(given[p.name]) for p in others}
    bound = bound_by_name(
        owner, parameters, {name: value for name, value in given.items() if name not in extra}
    )
    for name, value in {**bound, **extra}.items():
        if np.ndim(value):
            raise InputError(name, value, "give one value; use sweep for a grid")
    return bound, extra
