"""The design tool: which parameter gives the wanted quantity in a row of n.

Inverts the exact law of finite rows; a row that cannot get there says so, with its reach.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsity import kernels, quantities
from sparsity.arguments import number, text
from sparsity.design_search.answer import Design, Impossible, Requirement
from sparsity.design_search.free import named
from sparsity.design_search.growth import growth, sink_growth
from sparsity.design_search.levers import Lever, Reach, invert, lever
from sparsity.design_search.scan import SECONDS, Scan, TooLong, scan
from sparsity.errors import InputError
from sparsity.exact_law.exact import exact
from sparsity.kernels import Kernel, decayed, exp, identity, relu2
from sparsity.kernels.parameters import BETA, GAMMA, LENGTH
from sparsity.quantities import Quantity
from sparsity.rows.row import Row, row_of
from sparsity.rows.steps import SinkLogit

LENGTHS = (64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_000_000)
_LONGEST = 1e12  # to which the exact law is resolved


def _solve(kernel: Kernel, length: float, wanted: float, free: Lever, start: float) -> float:
    """The coordinate at which the lever gives the wanted n_eff."""

    def excess(x: float) -> float:
        return math.log(exact(kernel, length=length, **free.parameters(x)).value / wanted)

    found = invert(excess, free.ends, start)
    if found is None:
        here = min(max(start, free.ends[0]), free.ends[1])
        end = free.value(free.ends[excess(here) < 0])
        fix = f"needs {free.free} beyond {end:.3g}, where the law is not computed; "
        raise InputError("n_eff", wanted, f"{fix}keep off the ends of {free.reach}")
    return found


def _wanted(value: Any, quantity: Quantity, length: float, unit: bool = False) -> float:
    """The wanted value, checked against what any row of n can have; `unit`: with a sink logit."""
    what = "tokens" if quantity is quantities.n_eff else quantity.title
    wanted = number(quantity.name, value, f"give a number of {what}")
    if not quantity.has_law:
        raise InputError(quantity.name, value, "has no exact law to invert")
    least, most = quantity.ends(length, unit)
    if not (least <= wanted <= most and wanted > 0):
        fix = f"in rows of {length:.0f} tokens it is from {least:.6g} to {most:.6g}"
        if quantity is quantities.n_eff:
            fix = (
                f"a row of {length:.0f} tokens attends to at least 1 and at most {most:.0f} of them"
            )
        raise InputError(quantity.name, value, fix)
    return wanted


def _one_length(value: Any, quantity: Quantity) -> float:
    n = LENGTH.check(value)
    if n.ndim or not (2 <= n <= _LONGEST or quantity is quantities.sink_mass):
        raise InputError("length", value, "give one row length from 2 to 1e12")
    return float(n)


def _options(kernel: Kernel, options: dict[str, Any]) -> dict[str, float]:
    """The given options of the law, checked."""
    takes = {} if kernel is decayed else {"beta": BETA, "gamma": GAMMA}
    given = {}
    for name, value in options.items():
        if name not in takes:
            has = f"takes {' and '.join(takes)}" if takes else "has no other option: decay is free"
            raise InputError(name, value, f"design for {kernel.name} {has}")
        given[name] = takes[name].one(value)
    if kernel in (relu2, identity) and len(given) == 2:
        raise InputError(
            "gamma", options["gamma"], "with beta nothing is left to solve for; leave one out"
        )
    return given


def _target(n_eff: Any, of: Any, value: Any, options: dict[str, Any]) -> tuple[Quantity, Any]:
    """The one quantity that was asked for; it is taken out of the options."""
    if (of is None) != (value is None):
        raise InputError("of" if of is None else "value", None, "give of and value together")
    if of is not None:
        options |= {quantities.named(of).name: value}
    names = [quantity.name for quantity in quantities.ALL]
    names += [name for name in options if ":" in name]  # of a family: "top_k_mass:8"
    asked = {} if n_eff is None else {"n_eff": n_eff}
    asked |= {name: options.pop(name) for name in names if name in options}
    if len(asked) != 1:
        given = ", ".join(asked) or None
        raise InputError("n_eff", given, f"give one quantity to aim at: {', '.join(names)}")
    ((name, value),) = asked.items()
    return quantities.named(name), value


def _held(row: Row, free: str) -> dict[str, float] | None:
    """What is held in a row without steps whose lever is known; None where it is not known."""
    kernel = row.function
    levers = {exp: ("gamma",), relu2: ("gamma", "beta"), identity: ("gamma", "beta")}
    if row.steps or free not in {**levers, decayed: ("decay",)}.get(kernel, ()):
        return None
    if kernel is decayed:
        return {}
    return {"beta": row.beta} if free == "gamma" else {"gamma": row.gamma}


def _by_lever(
    record: Kernel, n: float, wanted: float, given: dict[str, float], others: list[float]
) -> Design:
    """The wanted n_eff of a kernel whose reach is known, and which n_eff rises in."""
    free = lever(record, n, wanted, given)
    if wanted not in free.reach:
        row = Row(record, **free.parameters(min(max(free.start, free.ends[0]), free.ends[1])))
        raise Impossible(row, n, "n_eff", wanted, free.reach)
    x = _solve(record, n, wanted, free, free.start)
    row = Row(record, **free.parameters(x))
    rows, shift = [], x - free.start
    for other in others:
        there = lever(record, other, wanted, given)
        value = None
        if wanted in there.reach:
            near = _solve(record, other, wanted, there, there.start + shift)
            value, shift = there.value(near), near - there.start
        rows.append(Requirement(int(other), value, there.reach.low, there.reach.high))
    return _checked(
        row,
        n,
        quantities.n_eff,
        wanted=wanted,
        parameter="scale" if record is exp and "gamma" in given else free.free,
        value=free.value(x),
        reach=free.reach,
        requirements=tuple(rows),
        growth=growth(record, n, wanted, given, row.params),
    )


def _by_scan(
    row: Row,
    name: str,
    n: float,
    quantity: Quantity,
    wanted: float,
    others: list[float],
    seconds: float,
    needed: bool,
) -> Design:
    """Any quantity of any row, by looking at it over the range of the free number.

    Args:
        row: the row; the free number in it is anything.
        name: of what is free.
        n: its length.
        quantity: what is asked of it.
        wanted: its value.
        others: other lengths.
        seconds: CPU time that it may take.
        needed: whether the other lengths were asked for; else they are left out if it is short.
    """
    free, begun = named(name, row), time.thread_time()
    (found,) = scan(row, free, [int(n)], quantity, wanted, seconds)
    why = f"what {name} from {found.first:.3g} to {found.last:.3g} reaches"
    if found.looks:
        why += f", by {found.looks} looks"
    ends = math.isfinite(found.first)
    reach = Reach(found.low, found.high, ends, ends, why)
    if not found.values:
        raise Impossible(row, n, quantity.name, wanted, reach)
    rows: list[Requirement] = []
    there: list[Scan] = []
    left = "Other lengths take too long to search; ask for those you need."
    try:
        each = [int(other) for other in others]
        there = scan(row, free, each, quantity, wanted, seconds + begun - time.thread_time())
        left = ""
    except TooLong:
        if needed:
            raise
    for other, scanned in zip(others, there, strict=not left):
        value = scanned.values[0] if scanned.values else None
        rows.append(Requirement(int(other), value, scanned.low, scanned.high))
    value, *also = found.values
    row = free.at(row, value)
    return _checked(
        row,
        n,
        quantity,
        wanted=wanted,
        parameter=name,
        value=value,
        reach=reach,
        requirements=tuple(rows),
        growth=sink_growth(row, n, wanted) if quantity is quantities.sink_mass else left,
        also=tuple(also),
        looks=found.looks,
    )


def _checked(row: Row, n: float, quantity: Quantity, **found: Any) -> Design:
    """The design, with the exact law of the row that was found."""
    law = exact(row, length=n, of=quantity)
    check, bound, p = map(float, (law.value, law.error_bound, law.p_nonzero))
    return Design(row, int(n), quantity.name, check=check, error_bound=bound, p_nonzero=p, **found)


def design(
    kernel: str | Kernel | Row = "exp",
    *,
    length: int,
    n_eff: float | None = None,
    of: str | Quantity | None = None,
    value: float | None = None,
    free: str | None = None,
    lengths: Sequence[int] | None = None,
    max_seconds: float = SECONDS,
    **options: Any,
) -> Design:
    """The parameter at which rows of `length` tokens have the wanted value of a quantity.

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
            "window", "scale", "logit". Its value in the row does not matter. In a row None is
            "gamma".
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
    whole = isinstance(kernel, Row)
    record = kernels.elementwise(kernel.kernel if isinstance(kernel, Row) else kernel)
    if record is kernels.nonnegative:
        fix = "design inverts the exact law of rows of kernels of scores, and of decayed; "
        fix += "features have no given law here (in long rows S = √(n_eff/n) ≥ 1/√(1+ratio²))"
        raise InputError("kernel", record.name, fix)
    n = _one_length(length, quantity)
    known = record in (exp, relu2, identity, decayed) and quantity is quantities.n_eff
    asked = () if whole else LENGTHS
    if lengths is not None:
        asked = np.ravel(LENGTH.check(lengths)).tolist()
    others = [_one_length(other, quantity) for other in asked]
    if not whole and free is None and known:
        given = _options(record, options)
        return _by_lever(record, n, _wanted(value, quantity, n), given, others)
    free = free or _first(record, quantity, options, whole)
    row = _row(kernel, record, free, options)
    held = _held(row, free) if known else None
    unit = any(isinstance(step, SinkLogit) for step in row.steps)
    wanted = _wanted(value, quantity, n, unit)
    if held is not None:
        return _by_lever(record, n, wanted, held, others)
    return _by_scan(row, free, n, quantity, wanted, others, max_seconds, lengths is not None)


def _first(record: Kernel, quantity: Quantity, options: dict[str, Any], whole: bool) -> str:
    """What is free where it is not said; `whole` for a row."""
    if quantity is quantities.sink_mass and not whole:
        return "logit"
    if record is decayed:
        return "decay"
    biased = record in (relu2, identity) and not whole and "beta" not in options
    return "beta" if biased else "gamma"


def _row(kernel: Any, record: Kernel, free: str, options: dict[str, Any]) -> Row:
    """The row that was given; of a kernel with its options, what is free being anything."""
    if isinstance(kernel, Row):
        return row_of(kernel, options)
    if free == "logit":
        return Row(record, steps=(SinkLogit(),), **options)
    anything: dict[str, Any] = {"decay": 0.5} if record is decayed else {"beta": 0.0, "gamma": 1.0}
    return Row(record, **(anything | options))
