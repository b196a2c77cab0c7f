"""`design`: which parameter gives the wanted quantity in a row of n, by inverting the exact law.

    design ──> monotone   what is known to rise in the parameter of a kernel: one root
           ├─> free       the number that is free in any row, and the range of it
           │     └─> scan any quantity: a look over the whole range, then every root
           └─> answer     the parameter, its check by the exact law, the reach, other lengths

A row that cannot get there says so, with what it can reach.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsity import kernels, quantities
from sparsity.arguments import number, text
from sparsity.design_search.answer import (
    Design,
    Impossible,
    Requirement,
    growth_in_words,
    sink_growth_in_words,
)
from sparsity.design_search.free import free_number
from sparsity.design_search.monotone import (
    Coordinate,
    Reach,
    rising_coordinate,
    sharpness,
    solve_rising,
    spread_of_softmax,
)
from sparsity.design_search.scan import CPU_SECONDS, TooLong, scan_lengths
from sparsity.errors import InputError, TooFine
from sparsity.exact_law.exact import exact
from sparsity.kernels import Kernel, decayed, exp, identity, relu2
from sparsity.kernels.parameters import BETA, GAMMA, LENGTH, names_parameters
from sparsity.quantities import Quantity
from sparsity.rows.row import Row, row_of
from sparsity.rows.steps import SinkLogit

__all__ = ["LENGTHS", "Design", "Impossible", "design"]

LENGTHS = (64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_000_000)
_LARGEST_STEP = 1.0  # of a coordinate, most of them logarithms: wider laws take longer to resolve
_LONGEST = 1e12  # tokens up to which n_eff is exact to 1e-9


@names_parameters("beta", "gamma")
def design(
    kernel: str | Kernel | Row = "exp",
    *,
    length: int,
    n_eff: float | None = None,
    of: str | Quantity | None = None,
    value: float | None = None,
    free: str | None = None,
    lengths: Sequence[int] | None = None,
    max_seconds: float = CPU_SECONDS,
    **options: Any,
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
            "window", "scale", "logit", "trained". Its value in the row does not matter. In a row
            None is "gamma".
        lengths: other lengths for which the requirement is given; None is `LENGTHS` for a kernel,
            none for a row.
        max_seconds: CPU time for a search over the range of a free number.
        **options: another quantity and its value, such as `S=0.3`; for a kernel `beta` (real) and
            `gamma` (> 0), as above.

    Returns:
        The parameter, its check, the reach at this length, and the requirement against n. Where
        several values solve it, the smallest; the others are in `also`. Where a quantity need not
        rise in what is free, it was looked at `looks` values of it, more densely where the kernel
        turns: others may lie between two of them.

    Raises:
        Impossible: the wanted value is out of reach; names the floor or ceiling.
        InputError: a bad value, or a row that has no exact law at finite n.
    """
    number("max_seconds", max_seconds, "must be > 0", lambda x: x > 0)
    quantity, value = _target(n_eff, of, value, options)
    if free is not None:
        text("free", free, "give the name of what is solved for, such as gamma")
    of_row = isinstance(kernel, Row)
    record = kernels.elementwise(kernel.kernel if isinstance(kernel, Row) else kernel)
    if record is kernels.nonnegative:
        fix = "design inverts the exact law of rows of kernels of scores, and of decayed; "
        fix += "features have no given law here (in long rows S = √(n_eff/n) ≥ 1/√(1+ratio²))"
        raise InputError("kernel", record.name, fix)
    n = _one_length(length, quantity)
    others = () if of_row else LENGTHS
    if lengths is not None:
        others = np.ravel(LENGTH.check(lengths)).tolist()
    others = [_one_length(other, quantity) for other in others]
    # For these n_eff is known to rise in the parameter, and one root is all: no range is searched,
    # and the reach is known beforehand.
    rises = record in (exp, relu2, identity, decayed) and quantity is quantities.n_eff
    if not of_row and free is None and rises:
        given = _check_options(record, options)
        return _by_root(record, quantity, n, _wanted(value, quantity, n), given, others)
    free = free or _default_free(record, quantity, options, of_row)
    if isinstance(kernel, Row):
        row = row_of(kernel, options)
    elif free == "logit":
        row = Row(record, steps=(SinkLogit(),), **options)
    else:  # what is free is anything
        own: dict[str, Any] = {"decay": 0.5} if record is decayed else {"beta": 0.0, "gamma": 1.0}
        row = Row(record, **(own | options))
    with_sink_logit = any(isinstance(step, SinkLogit) for step in row.steps)
    wanted = _wanted(value, quantity, n, with_sink_logit)
    rises = rises or (record is exp and sharpness(quantity) != 0)
    if rises and (held := _held(row, free)) is not None:
        return _by_root(record, quantity, n, wanted, held, others)
    return _by_scan(row, free, n, quantity, wanted, others, max_seconds, lengths is not None)


def _target(n_eff: Any, of: Any, value: Any, options: dict[str, Any]) -> tuple[Quantity, Any]:
    """Return the one quantity that was asked for, and its value; removes it from the options.

    It is given as `n_eff=`, as `of=` with `value=`, or by its own name among the options.
    """
    if (of is None) != (value is None):
        raise InputError("of" if of is None else "value", None, "give of and value together")
    if of is not None:
        options |= {quantities.named(of).name: value}
    names = [quantity.name for quantity in quantities.ALL]
    names += [name for name in options if ":" in name]  # of a family: "top_k_mass:8"
    targets = {} if n_eff is None else {"n_eff": n_eff}
    targets |= {name: options.pop(name) for name in names if name in options}
    if len(targets) != 1:
        given = ", ".join(targets) or None
        raise InputError("n_eff", given, f"give one quantity to aim at: {', '.join(names)}")
    ((name, value),) = targets.items()
    return quantities.named(name), value


def _one_length(value: Any, quantity: Quantity) -> float:
    """Return one checked length; a sink takes its share of a single token as well."""
    n = LENGTH.check(value)
    if n.ndim or not (2 <= n <= _LONGEST or quantity is quantities.sink_mass):
        raise InputError("length", value, "give one row length from 2 to 1e12")
    return float(n)


def _wanted(value: Any, quantity: Quantity, length: float, with_sink_logit: bool = False) -> float:
    """Check the wanted value against what any row of n can have."""
    what = "tokens" if quantity is quantities.n_eff else quantity.title
    wanted = number(quantity.name, value, f"give a number of {what}")
    if not quantity.has_law:
        raise InputError(quantity.name, value, "has no exact law to invert")
    least, most = quantity.ends(length, with_sink_logit)
    if not (least <= wanted <= most and wanted > 0):
        fix = f"in rows of {length:.0f} tokens it is from {least:.6g} to {most:.6g}"
        if quantity is quantities.n_eff:
            fix = (
                f"a row of {length:.0f} tokens attends to at least 1 and at most {most:.0f} of them"
            )
        raise InputError(quantity.name, value, fix)
    return wanted


def _check_options(kernel: Kernel, options: dict[str, Any]) -> dict[str, float]:
    """Check what is held fixed of a kernel."""
    takes = {} if kernel is decayed else {"beta": BETA, "gamma": GAMMA}
    given = {}
    for name, value in options.items():
        if name not in takes:
            has = f"takes {' and '.join(takes)}" if takes else "has no other option: decay is free"
            raise InputError(name, value, f"design for {kernel.name} {has}")
        given[name] = takes[name].one(value)
    if kernel in (relu2, identity) and len(given) == 2:
        fix = "with beta nothing is left to solve for; leave one out"
        raise InputError("gamma", options["gamma"], fix)
    return given


def _default_free(record: Kernel, quantity: Quantity, options: dict[str, Any], of_row: bool) -> str:
    """Return the name of what is free where the caller does not say."""
    if quantity is quantities.sink_mass and not of_row:
        return "logit"
    if record is decayed:
        return "decay"
    biased = record in (relu2, identity) and not of_row and "beta" not in options
    return "beta" if biased else "gamma"


def _held(row: Row, free: str) -> dict[str, float] | None:
    """Return what is held fixed in a row whose n_eff is known to rise; None for any other row."""
    may_be_free = {exp: ("gamma",), decayed: ("decay",)}.get(row.function, ("gamma", "beta"))
    if row.steps or free not in may_be_free:
        return None
    if row.function is decayed:
        return {}
    return {"beta": row.beta} if free == "gamma" else {"gamma": row.gamma}


def _by_root(
    record: Kernel,
    quantity: Quantity,
    n: float,
    wanted: float,
    given: dict[str, float],
    others: list[float],
) -> Design:
    """Design a quantity whose reach is known, and which rises in the parameter of a kernel."""
    of_tokens = quantity is quantities.n_eff

    def coordinate(length: float) -> Coordinate:
        if of_tokens:
            return rising_coordinate(record, length, wanted, given)
        return spread_of_softmax(quantity, length, given)

    free = coordinate(n)
    if wanted not in free.reach:
        row = Row(record, **free.parameters(min(max(free.start, free.ends[0]), free.ends[1])))
        raise Impossible(row, n, quantity.name, wanted, free.reach)
    x = _solve(record, quantity, n, wanted, free, free.start)
    row = Row(record, **free.parameters(x))
    # From n outwards: the first guess of a length is off as those of the last two were.
    shifts, found = [(math.log(n), x - free.start)], {}
    for other in sorted(others, key=lambda m: abs(math.log(m / n))):
        there, value = coordinate(other), None
        if other == n:
            value = free.value(x)
        elif wanted in there.reach:
            start = there.start + _shift_expected(shifts, math.log(other))
            near = _solve(record, quantity, other, wanted, there, start)
            value = there.value(near)
            shifts.append((math.log(other), near - there.start))
        found[other] = Requirement(int(other), value, there.reach.low, there.reach.high)
    rows = [found[other] for other in others]
    return _checked(
        row,
        n,
        quantity,
        wanted=wanted,
        parameter="scale" if of_tokens and record is exp and "gamma" in given else free.name,
        value=free.value(x),
        reach=free.reach,
        requirements=tuple(rows),
        growth=growth_in_words(record, n, wanted, given, row.params) if of_tokens else "",
    )


def _shift_expected(known: list[tuple[float, float]], at: float) -> float:
    """Return how far a first guess is expected to be off, on the line through the nearest two.

    Args:
        known: (ln n, how far it was off) of other lengths.
        at: ln n.
    """
    (here, shift), *others = sorted(known, key=lambda pair: abs(pair[0] - at))[:2]
    return shift + sum((at - here) / (there - here) * (that - shift) for there, that in others)


def _solve(
    kernel: Kernel,
    quantity: Quantity,
    length: float,
    wanted: float,
    free: Coordinate,
    start: float,
) -> float:
    """Return the coordinate at which the kernel has the wanted value of the quantity.

    Raises:
        InputError: it is beyond where the law can be computed.
    """
    known = [min(max(start, free.ends[0]), free.ends[1])]

    def excess(x: float) -> float:
        found = exact(kernel, length=length, of=quantity, **free.parameters(x))
        known.append(x)
        return math.log(found.value / wanted)

    try:
        found, reason = solve_rising(excess, free.ends, known[0], _LARGEST_STEP), "computed"
    except TooFine as error:
        found, reason = None, f"resolved ({error.fix})"
    if found is None:
        fix = f"needs {free.name} beyond {free.value(known[-1]):.3g}, where the law is not {reason}"
        raise InputError(quantity.name, wanted, f"{fix}; keep off the ends of {free.reach}")
    return found


def _by_scan(
    row: Row,
    name: str,
    n: float,
    quantity: Quantity,
    wanted: float,
    others: list[float],
    seconds: float,
    others_needed: bool,
) -> Design:
    """Design any quantity of any row, by looking at it over the range of the free number.

    Args:
        row: the row; the free number in it is anything.
        name: of what is free.
        n: its length.
        quantity: what is asked of it.
        wanted: its value.
        others: other lengths.
        seconds: CPU time that it may take.
        others_needed: whether the other lengths were asked for; else they are left out where they
            take too long.
    """
    free, begun = free_number(name, row), time.thread_time()
    (found,) = scan_lengths(row, free, [int(n)], quantity, wanted, seconds)
    why = f"what {name} from {found.first:.3g} to {found.last:.3g} reaches"
    if found.looks:
        why += f", by {found.looks} looks"
    ends = math.isfinite(found.first)
    reach = Reach(found.low, found.high, ends, ends, why)
    if not found.values:
        raise Impossible(row, n, quantity.name, wanted, reach)
    # The answer itself is there by now: lengths that nobody asked for must not lose it.
    growth, there = "", []
    try:
        each, left = [int(other) for other in others], seconds + begun - time.thread_time()
        there = scan_lengths(row, free, each, quantity, wanted, left)
    except TooLong:
        if others_needed:
            raise
        growth = "Other lengths take too long to search; ask for those you need."
    rows = [
        Requirement(int(other), one.values[0] if one.values else None, one.low, one.high)
        for other, one in zip(others, there, strict=not growth)
    ]
    value, *also = found.values
    row = free.set_in(row, value)
    if quantity is quantities.sink_mass:
        growth = sink_growth_in_words(row, n, wanted)
    return _checked(
        row,
        n,
        quantity,
        wanted=wanted,
        parameter=name,
        value=value,
        reach=reach,
        requirements=tuple(rows),
        growth=growth,
        also=tuple(also),
        looks=found.looks,
    )


def _checked(row: Row, n: float, quantity: Quantity, **found: Any) -> Design:
    """Return the design, checked by the exact law of the row that was found."""
    law = exact(row, length=n, of=quantity)
    check, bound, p = map(float, (law.value, law.error_bound, law.p_nonzero))
    return Design(row, int(n), quantity.name, check=check, error_bound=bound, p_nonzero=p, **found)


def __dir__() -> list[str]:
    return sorted(__all__)
