"""`design`: which parameter gives the wanted quantity in a row of n, by inverting the exact law.

    design ──> free_numbers   what can be free in the row, and over which range
           ├─> search         a look over that range, every root
           └─> answer         the parameter, its check by the exact law, the reach, other lengths

A row that cannot get there says so, with what it can reach.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np

from sparsity import kernels, quantities
from sparsity.calls import NotTaken
from sparsity.checks import check_choice, check_number, check_progress
from sparsity.design_search.answer import Design, Impossible, Requirement
from sparsity.design_search.free_numbers import NAMES, free_number
from sparsity.design_search.search import solve_lengths
from sparsity.errors import InputError
from sparsity.exact_law.exact import exact
from sparsity.kernels import Kernel, RowMap, decayed, exp, identity, relu2
from sparsity.kernels.parameters import LENGTH, One, names_parameters
from sparsity.quantities import Quantity
from sparsity.rows.row import Row, row_of
from sparsity.rows.steps import ScalableSoftmax, SinkLogit

LENGTHS = (256, 2048, 16_384, 131_072, 1_000_000)
_LONGEST = 1e12  # tokens up to which n_eff is exact to 1e-9


class _Aims(TypedDict, total=False):
    """A quantity to aim at by its own name, and what a kernel holds."""

    beta: One
    gamma: One
    within: One
    S: float
    participation: float
    entropy: float
    kl_uniform: float
    varentropy: float
    max_weight: float
    gini: float
    hoyer: float
    sink_mass: float
    needle_mass: float
    needle_signal: float
    needle_largest: float
    square_sum: float
    abs_sum: float


@names_parameters("beta", "gamma", "within")
def design(
    kernel: str | Kernel | Row = "exp",
    *,
    length: One,
    n_eff: float | None = None,
    of: str | Quantity | None = None,
    value: float | None = None,
    free: str | None = None,
    lengths: Sequence[int] | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[_Aims],
) -> Design:
    """Find the parameter at which rows of `length` tokens have the wanted value of a quantity.

    Solves the exact law of finite rows, E[(Σ|a|)²/Σa²] = n_eff for instance. Of a kernel without
    `free` it solves for exp: γ, or, with γ₀ = `gamma` given, the scale s of log-n scaling,
    γ = γ₀·s·ln n; relu2 and identity: β at `gamma` (default 1), or γ at `beta`; decayed: λ. With
    `sink_mass` it is the logit of a sink beside the tokens.

    Args:
        kernel: a `Row`, a built-in kernel's name, or a `Kernel`.
        length: row length n, from 2 to 10¹²; for `sink_mass` any.
        n_eff: the wanted effective number of tokens, in [1, n].
        of: another quantity in its place, such as "top_k_mass:8",
        value: and what it is to be.
        free: what is solved for: "gamma", "beta", or a number of a step: "decay", "slope",
            "window", "scale", "logit", "trained"; or "threshold", the number ln λ of
            "below:-1" and its kind. Its value in the row does not matter. In a row
            None is "gamma", of decayed "decay".
        lengths: other lengths for which the requirement is given; None is `LENGTHS` for a kernel,
            none for a row.
        progress: called with (looks taken, looks in all as far as is known): of "keys_for_mass:0.9"
            each takes seconds.
        **options: another quantity and its value, such as `S=0.3`; for a kernel `beta` (real) and
            `gamma` (> 0), as above; `within` of tile-softmax.

    Returns:
        The parameter, its check, the reach at this length, and the requirement against n. Where
        several values solve it, the smallest; the others are in `also`. It was looked at `looks`
        values of what is free, on a grid of at most 17 over the range that `reach` names and, where
        that shows an extreme, about it: others may lie between two of them.

    Raises:
        Impossible: the wanted value is out of reach; names the floor or ceiling.
        InputError: a bad value, or a row that has no exact law at finite n.
    """
    check_progress(progress)
    held: dict[str, Any] = {**options}
    quantity, value = _target(n_eff, of, value, held)
    of_row = isinstance(kernel, Row)
    record: Any = kernels.named(kernel.kernel if isinstance(kernel, Row) else kernel)
    of_quantity = isinstance(free, str) and free == "threshold"  # whatever the row is
    if not of_quantity:
        record = kernels.elementwise(record)
    if record is kernels.nonnegative:
        fix = "design inverts the exact law of rows of kernels of scores, and of decayed; "
        fix += "features have no given law here (in long rows S = √(n_eff/n) ≥ 1/√(1+ratio²))"
        raise InputError("kernel", record.name, fix)
    n = _one_length(length, quantity)
    others = () if of_row else LENGTHS
    if lengths is not None:
        others = np.ravel(LENGTH.check(lengths)).tolist()
    others = [_one_length(other, quantity) for other in others]
    tokens_of_exp = record is exp and quantity is quantities.n_eff and not of_row and free is None
    if tokens_of_exp and "gamma" in held:
        kernel, held, free = Row(exp, steps=(ScalableSoftmax(),), **held), {}, "scale"
    if free is None:
        free = _default_free(record, quantity, held, of_row)
    free = check_choice("free", free, NAMES)
    row = row_of(kernel, held) if isinstance(kernel, Row) else _any_row(record, free, held)
    with_sink_logit = any(isinstance(step, SinkLogit) for step in row.steps)
    wanted = _wanted(value, quantity, n, with_sink_logit)
    free_in_row = free_number(free, row)
    first, *rest = solve_lengths(row, free_in_row, quantity, wanted, [n, *others], progress)
    if not first.values:
        raise Impossible(row, n, quantity.name, wanted, first.reach)
    requirements = tuple(
        Requirement(m, there.values[0] if there.values else None, there.reach.low, there.reach.high)
        for m, there in zip(others, rest, strict=True)
    )
    value, *also = first.values
    row = free_in_row.set_in(row, value)
    quantity = free_in_row.asked(quantity, value)
    law = exact(row, length=n, of=quantity)
    check, bound, p_nonzero = map(float, (law.value, law.error_bound, law.p_nonzero))
    return Design(
        *(row, n, quantity.name, wanted, free, value, check, bound, p_nonzero, first.reach),
        requirements,
        tuple(also),
        first.looks,
    )


def _target(n_eff: Any, of: Any, value: Any, options: dict[str, Any]) -> tuple[Quantity, Any]:
    """Return the one quantity that was asked for, and its value; removes it from the options.

    It is given as `n_eff=`, as `of=` with `value=`, or by its own name among the options.
    """
    if (of is None) != (value is None):
        raise InputError("of" if of is None else "value", None, "give of and value together")
    names = [q.name for q in (*quantities.ALL, *quantities.OF_MAPS) if q.has_law]
    targets = [] if n_eff is None else [("n_eff", n_eff)]
    given_by_name = [name for name in options if name in names or ":" in name]
    targets += [(name, options.pop(name)) for name in given_by_name]
    targets += [] if of is None else [(quantities.named(of).name, value)]
    if len(targets) != 1:
        for name, value in options.items():
            if not targets and name not in ("beta", "gamma"):
                raise NotTaken(name, value, "design", names)
        given = ", ".join(name for name, _ in targets) or None
        fix = f"give one quantity to aim at: {', '.join(names)}, or with a number, top_k_mass:8"
        raise InputError("of" if targets else "n_eff", given, fix)
    ((name, value),) = targets
    return quantities.named(name), value


def _one_length(value: Any, quantity: Quantity) -> int:
    """Return one checked length; a sink takes its share of a single token as well."""
    n = LENGTH.check(value)
    if n.ndim or not (2 <= n <= _LONGEST or quantity is quantities.sink_mass):
        raise InputError("length", value, "give one row length from 2 to 1e12")
    return int(n)


def _wanted(value: Any, quantity: Quantity, length: int, with_sink_logit: bool) -> float:
    """Check the wanted value against what any row of n can have."""
    what = "tokens" if quantity is quantities.n_eff else quantity.title
    wanted = check_number(quantity.name, value, f"give a number of {what}")
    if not quantity.has_law:
        raise InputError(quantity.name, value, "has no exact law to invert")
    least, most = quantity.ends(length, with_sink_logit)
    if not (least <= wanted <= most and wanted > 0):
        fix = f"in rows of {length} tokens it is from {least:.6g} to {most:.6g}"
        if quantity is quantities.n_eff:
            fix = f"a row of {length} tokens attends to at least 1 and at most {most:.0f} of them"
        raise InputError(quantity.name, value, fix)
    return wanted


def _default_free(record: Kernel, quantity: Quantity, options: dict[str, Any], of_row: bool) -> str:
    """Return the name of what is free where the caller does not say."""
    if quantity is quantities.sink_mass and not of_row:
        return "logit"
    if record is decayed:
        return "decay"
    if record in (relu2, identity) and not of_row:
        if {"beta", "gamma"} <= options.keys() and quantity is quantities.n_eff:
            fix = "with beta nothing is left to solve for; leave one out"
            raise InputError("gamma", options["gamma"], fix)
        return "gamma" if "beta" in options else "beta"
    return "gamma"


def _any_row(record: Kernel, free: str, options: dict[str, Any]) -> Row:
    """Return the row of a kernel with the options that are held; what is free has any value."""
    if free == "logit":
        return Row(record, steps=(SinkLogit(),), **options)
    if isinstance(record, RowMap):
        return Row(record, **options)
    anything: dict[str, Any] = {"decay": 0.5} if record is decayed else {"beta": 0.0, "gamma": 1.0}
    return Row(record, **(anything | options))
