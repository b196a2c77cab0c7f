"""Weights that depend on the whole row of scores, and the threshold that many of them have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sparsity import parsing
from sparsity.errors import InputError
from sparsity.kernels.base import Law
from sparsity.kernels.parameters import BETA, DIM, GAMMA, LENGTH, Parameter, one_of_each

# Of maps that a constant added to every score does not move.
SHIFTED = (BETA, GAMMA)


class Drawn(NamedTuple):
    """What the tokens of a row are drawn from, where that is not one score N(β, γ²) each.

    Args:
        words: what is random.
        token: how many standard normals a token has, given the parameters by name.
        read: (normals of tokens [rows, n, token], normals of rows [rows, row], **parameters) ->
            what the map's `weights` take, with the arrays' own operators.
        row: how many standard normals the tokens of a row share, given the parameters.
    """

    words: str
    token: Callable[[Mapping[str, Any]], int]
    read: Callable[..., Any]
    row: Callable[[Mapping[str, Any]], int] = lambda parameters: 0


@dataclass(frozen=True)
class RowMap:
    """Attention weights of a row as a whole, none a function of its own score alone.

    Most are p_1 … p_n ≥ 0 with Σp ≤ 1, of scores s_j ~ N(β, γ²), independent. Another law of the
    tokens is `drawn`. Maps with `unnormalised` weights have a limit S; others are asked with a
    length.

    Args:
        name: identifier, as used on the command line; "family:number" for a member of a family.
        title: the name a reader knows it by.
        weights: its definition: scores -> weights, rows along the last axis, with the arrays' own
            operators (NumPy and JAX).
        formula: the definition in a line of text.
        source: where it is defined.
        parameters: of its scores, in the order of the command line.
        residual_mass: scores -> 1 − Σp to full precision; None where the weights add up to 1.
        with_number: of a family, the map of another number.
        parse_number: of a family, (text, argument) -> the number that it writes.
        drawn: what its tokens are drawn from; None is scores N(β, γ²).
        unnormalised: what `weights` take -> the weights before the total of the row divides them,
            or with that total at its mean: the limit S is that of their moments. None where there
            are none.
        identically_distributed: whether its tokens are of one law, so that this limit is the same
            at every length.
        reads_top: what `weights` take -> whether the key of the largest score is read; None where
            it always is.
    """

    name: str
    title: str
    weights: Callable[[Any], Any]
    formula: str
    source: str
    parameters: tuple[Parameter, ...] = SHIFTED
    residual_mass: Callable[[Any], Any] | None = None
    with_number: Callable[[Any], RowMap] | None = None
    parse_number: Callable[[str, str], Any] = parsing.parse_whole
    drawn: Drawn | None = None
    unnormalised: Callable[[Any], Any] | None = None
    identically_distributed: bool = True
    reads_top: Callable[[Any], Any] | None = None
    law: ClassVar[Law] = Law.ROW

    def __repr__(self) -> str:
        return f"RowMap({self.name!r})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled by name where it has one: its functions cannot be, and caches know it again."""
        from sparsity import kernels

        known = kernels.in_python(self) == repr(self.name)
        return (kernels.named, (self.name,)) if known else super().__reduce_ex__(protocol)

    @property
    def family(self) -> str:
        """The name without its number."""
        return self.name.partition(":")[0]

    @property
    def random(self) -> str:
        """What is random in a row, in words."""
        return self.law.value if self.drawn is None else self.drawn.words

    @property
    def as_unnormalised(self) -> RowMap:
        """The map whose weights are the unnormalised ones.

        Raises:
            InputError: it has none.
        """
        if self.unnormalised is None:
            raise refused(self)
        return replace(self, weights=self.unnormalised, residual_mass=None, unnormalised=None)

    def bind(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """One value of each parameter by name, as `Kernel.bind`.

        Raises:
            InputError: a parameter that it does not take, a missing one, a bad value, or several.
        """
        return one_of_each(self.name, self.parameters, (), given)[0]

    def bind_row(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The same, and the `length` and `dim` of whole keys if given, as `Kernel.bind_row`.

        Raises:
            InputError: as `bind`.
        """
        return one_of_each(self.name, self.parameters, (LENGTH, DIM), given)


def refused(record: RowMap) -> InputError:
    """The error of an instrument that takes weights of single scores only."""
    fix = "its weights depend on the whole row; use exact, estimate or verify with a length"
    return InputError("kernel", record.name, fix)


def newton_from_below(step: Callable[[Any], Any], start: Any) -> Any:
    """Return the thresholds of rows, each the root of a falling convex function.

    Newton's steps from below rise to the root and never pass it, so they are done when `step` no
    longer raises any of them. No row is sorted: of a row of many keys, few are ever near it.

    Args:
        step: thresholds -> the next ones, [..., 1].
        start: thresholds below the root, an array of NumPy or JAX.
    """
    xp = start.__array_namespace__()

    def next_(pair: tuple[Any, Any]) -> tuple[Any, Any]:
        return pair[1], xp.maximum(pair[1], step(pair[1]))

    def rises(pair: tuple[Any, Any]) -> Any:
        return (pair[1] > pair[0]).any()

    pair = next_((start, start))
    if not isinstance(start, np.ndarray):
        import jax

        return jax.lax.while_loop(rises, next_, pair)[1]
    while rises(pair):
        pair = next_(pair)
    return pair[1]
