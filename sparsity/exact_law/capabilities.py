"""Which instrument knows a quantity of a row: `capabilities`, asked by all that combine several.

    sweeps, plots, panel, design, crosscheck ──> capabilities ──> exact laws, limits, sampling

Each instrument refuses what it does not know, in its own words. Whoever has to choose between them,
or to leave one out, asks here first instead of trying: a refusal that is caught looks the same
whether a law is unknown or a value is bad.
"""

from __future__ import annotations

from typing import NamedTuple

from sparsity import quantities
from sparsity.exact_law import engine, map_laws
from sparsity.kernels import Kernel, Law, RowMap
from sparsity.limit import map_limits
from sparsity.quantities import Quantity
from sparsity.rows.classes import ANY_LENGTH, alike_in_sight, classify_tokens, same_at_any_length
from sparsity.rows.row import Row, have_pairs
from sparsity.rows.score_laws import Scores
from sparsity.rows.steps import Needle, QKNorm
from sparsity.rows.tokens import Step


class Capabilities(NamedTuple):
    """What the instruments know of a quantity of a row.

    Parameters may still be out of an instrument's reach: too long, too wide, an infinite moment.

    Args:
        exact: whether `exact` has a law of it in rows of n.
        sampled: whether `estimate` samples it.
        missing: the "sink" or "needle" that it asks for and the row lacks, so that all three
            refuse it; None where nothing is missing.
        limit: whether `evaluate` has its limit in long rows.
        limit_needs_length: whether the limit depends on the length, so that one must be given.
        shares_nodes: whether this law is computed for many β and γ at once (`exact_grid`).
    """

    exact: bool
    sampled: bool
    missing: str | None
    limit: bool = False
    limit_needs_length: bool = False
    shares_nodes: bool = False


def capabilities(
    row: Row | Kernel | RowMap, quantity: Quantity, length: int | None = None
) -> Capabilities:
    """Return what the instruments know of a quantity.

    Args:
        row: the row; of a kernel, its rows without steps.
        quantity: what is asked of it.
        length: n of the row; with None a law counts as known where it is known at some length.
    """
    kernel, steps = (row.kernel, row.steps) if isinstance(row, Row) else (row, ())
    is_S = quantity is quantities.S
    # Weights of features are sums over d of them, for which no law at finite n is known here.
    if kernel.law is Law.FEATURES:
        return Capabilities(exact=False, sampled=is_S, missing=quantity.needs, limit=is_S)
    # Weights by position have nothing random: powers of S and n are exact, and sampled as well.
    if kernel.law is Law.POSITION:
        power = quantity.name in quantities.POWERS_OF_S_AND_N
        return Capabilities(
            exact=power, sampled=power, missing=quantity.needs, limit=is_S, limit_needs_length=True
        )
    if isinstance(kernel, RowMap):
        return _of_map(kernel, steps, quantity)
    if not isinstance(row, Row) or not steps:
        return Capabilities(
            exact=engine.has_law(kernel, quantity),
            sampled=True,
            missing=quantity.needs,
            limit=quantity.has_limit
            and (quantity.pair is None or engine.has_law(kernel, quantity)),
            limit_needs_length=_goes_by_length(quantity),
            shares_nodes=quantity.integral is not None and not (quantity.needs or quantity.token),
        )
    if not all(getattr(step, "normal", True) for step in steps):
        # Scores that are not normal are no tokens of a known law: they are drawn from CoCA itself.
        sampled = len(steps) == 1 and quantity.pair is None
        return Capabilities(exact=False, sampled=sampled, missing=quantity.needs)
    return _of_steps(row, quantity, length)


def _of_map(kernel: RowMap, steps: tuple[Step, ...], quantity: Quantity) -> Capabilities:
    """Return what is known of a map of whole rows, whose laws and limits are of its own scores."""
    limit = quantity is quantities.S and map_limits.has(kernel) and not steps
    there = {None} | {"needle" for step in steps if isinstance(step, Needle)}
    return Capabilities(
        exact=map_laws.has(kernel, quantity) and not steps,
        # Keys on a sphere are drawn for functions of a score only.
        sampled=not any(isinstance(step, QKNorm) for step in steps)
        and (quantity.pair is None or have_pairs(kernel, steps)),
        missing=None if quantity.needs in there else quantity.needs,
        limit=limit,
        limit_needs_length=not kernel.identically_distributed,
    )


def _goes_by_length(quantity: Quantity) -> bool:
    """Return whether a limit depends on n where tokens are alike: all do but S and its images."""
    of = quantity if quantity.linear is None else quantity.linear.of
    return of.limit is not None and of is not quantities.S


def _of_steps(row: Row, quantity: Quantity, length: int | None) -> Capabilities:
    """Return what is known of a row whose steps change some of its tokens."""
    of = quantity if quantity.linear is None else quantity.linear.of
    given = classify_tokens(row, length or row.length or ANY_LENGTH)
    same = same_at_any_length(row)
    # What is no integral over u is known for Gaussian scores, and what goes by the rank of every
    # weight only where all have one law.
    gaussian = not any(isinstance(step, Scores) for step in row.steps)
    exact = engine.has_law(row.function, quantity)
    if of.rank_law is not None:
        exact &= gaussian and (length is None or alike_in_sight(given))
    elif of.pair is not None:
        exact &= gaussian and alike_in_sight(given)
    elif of.integral is None and of.moment is None:
        exact &= gaussian
    there = quantity.needs is None or given.of(quantity.needs).any()
    return Capabilities(
        exact=exact,
        sampled=of.pair is None or have_pairs(row.kernel, row.steps),
        missing=None if there else quantity.needs,
        limit=quantity.has_limit and (of.pair is None or exact),
        limit_needs_length=_goes_by_length(quantity) or not same,
    )
