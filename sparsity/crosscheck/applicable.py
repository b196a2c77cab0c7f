"""Which pairs of instruments can answer for a row of one's own.

No table says it: each instrument is asked, and where it refuses, its refusal is the reason that
the outcome gives.

    row, n ─> candidates ─> asked, and refused or kept ─> theory ⇄ sampler, theory ⇄ theory
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from sparsity import quantities
from sparsity.crosscheck.cells import Question
from sparsity.errors import InputError, NoClosedForm
from sparsity.exact_law import map_laws
from sparsity.exact_law.capabilities import capabilities
from sparsity.kernels import Law, RowMap
from sparsity.kernels.lowering import numpy_log_abs
from sparsity.kernels.parameters import LENGTH
from sparsity.limit import map_limits
from sparsity.limit.long_rows import log_sums
from sparsity.rows import classes
from sparsity.rows.classes import ANY_LENGTH
from sparsity.rows.row import Row
from sparsity.rows.score_laws import StudentT
from sparsity.sampling.devices import CHUNK
from sparsity.sampling.row_sources import NUMBERS_AT_ONCE


class Pairs(NamedTuple):
    """The pairs of instruments to hold against each other.

    Args:
        sampled: theories against samplers.
        exact: theories against each other.
        left_out: what does not apply, each with the reason.
        theories: log of the quantity of a cell by its first instrument, as far as it is computed.
    """

    sampled: tuple[Question, ...]
    exact: tuple[Question, ...]
    left_out: tuple[str, ...]
    theories: dict[Question, float]


# Share of the detectable error that the standard error of a cell is sampled to: a theory is good
# enough for a cell if its own bound is below that.
STDERR_SHARE = 0.11
MOST_SCORES = 1e9  # that are drawn for the rows of one's own row: half a minute on a core
# Tail index of pooled moments. Draws show it to a fifth, and from ½ on their bar is not trusted.
_MOST_OF_TAIL = 0.38


def applicable_pairs(row: Row, length: Any, rel_error: float) -> Pairs:
    """Return every pair of instruments that can answer for a row.

    Args:
        row: the row.
        length: n, or None.
        rel_error: the standard error that a cell is sampled to.

    Raises:
        InputError: no theory can be held against a sampler.
    """
    n = None if length is None else int(LENGTH.one(length))
    kept: list[Question] = []
    theories = {}
    left_out, refusals = [], []
    for cell in _candidates(row, n):
        # A cell stands if both of its instruments answer, and the theory well enough.
        try:
            if cell.draws_rows and CHUNK * (cell.length or ANY_LENGTH) > MOST_SCORES:
                fix = f"verify draws rows of at most {MOST_SCORES / CHUNK:.0f} tokens"
                raise InputError("length", cell.length, fix)
            theory, error = cell.value()
            if not cell.statistical:
                cell.value(1)
            elif not math.isfinite(theory):
                raise InputError(cell.quantity, f"e^{theory:g}", "has no logarithm to compare")
            elif error > rel_error:
                fix = (
                    f"its exact law is known only to {error:.1g}, coarser than what sampling shows"
                )
                raise InputError(cell.quantity, f"e^{theory:g}", fix)
            if cell.instruments[1] == "pooled rows":
                _refuse_rare_rows(cell, rel_error)
            kept.append(cell)
            theories[cell] = theory
        except (InputError, NoClosedForm) as error:
            left_out.append(f"{cell.quantity}, {' against '.join(cell.instruments)}: {error}")
            refusals.append(error)
    sampled = tuple(cell for cell in kept if cell.statistical)
    if not sampled:
        raise next((e for e in refusals if isinstance(e, InputError)), refusals[0])
    exact = tuple(cell for cell in kept if not cell.statistical)
    return Pairs(sampled, exact, tuple(left_out), theories)


def _candidates(row: Row, n: int | None) -> list[Question]:
    """Return every cell whose instruments may answer for a row; some of them will refuse it."""
    if isinstance(row.kernel, RowMap):
        return _candidates_of_map(row, row.kernel, n)
    # S of long rows is held against pooled moments if there are steps, else against scalar draws.
    # The closed form and the derivation are held against quadrature.
    law, questions = row.kernel.law, []
    of_positions = n if law is Law.POSITION else None
    if row.steps:
        questions.append(Question(row, ("limit", "pooled rows"), "S", n))
    else:
        questions.append(Question(row, ("limit", "scalars"), "S", of_positions))
        if law is not Law.FEATURES:
            questions.append(Question(row, ("closed form", "quadrature"), "S", of_positions))
        if law is Law.SCORE:
            questions.append(Question(row, ("derivation", "quadrature")))
    if law is not Law.SCORE:
        if n is not None and law is not Law.POSITION:
            row.scored()  # raises: rows of n tokens of features have no given law
        return questions
    if n is None:
        return questions
    for quantity in quantities.ALL:
        if (quantity.whole and n > NUMBERS_AT_ONCE) or quantity.linear is not None:
            continue  # a linear image of another quantity, whose own cell checks both
        # Laws that refuse this row stay candidates, to be left out with their own reason.
        if quantity.has_law and capabilities(row, quantity, n).missing is None:
            questions.append(Question(row, ("exact law", "whole rows"), quantity.name, n))
    return questions


def _candidates_of_map(row: Row, kernel: RowMap, n: int | None) -> list[Question]:
    """Return cells of the quantities with an exact law under a map of rows, and of its limit S."""
    names = [name for name in map_laws.known(kernel) if quantities.named(name).linear is None]
    known = capabilities(row, quantities.S)
    limit = [Question(row, ("limit", "pooled rows"), "S", n if known.limit_needs_length else None)]
    if known.limit and (n is None or not names):
        return limit
    if not names:
        raise InputError("kernel", kernel.name, f"has {map_laws.NO_LAW}")
    if n is None:
        fix = f"the weights of {kernel.name} depend on the whole row; give its length n"
        raise InputError("length", None, fix)
    laws = [Question(row, ("exact law", "whole rows"), name, n) for name in names]
    return laws + limit if known.limit else laws


def _log_scatter(row: Row, n: int) -> float:
    """Return the log of n times the relative variance of Σa² over rows, as it is at most."""
    if isinstance(row.kernel, RowMap):
        return map_limits.log_scatter(row.kernel, row.params, n)
    given = classes.rescaled(classes.classify_tokens(row, n), units=False)
    (second, _), (fourth, _) = log_sums(given, (2, 4))
    if any(isinstance(step, StudentT) for step in row.steps):
        log_sums(given, (4, 8))
    return fourth - 2 * second + math.log(n)


def _tail_index(row: Row, n: int, draws: float) -> float:
    """Return about the tail index that e^draws scores show in Σa²: d ln a²/d ln(1/P), 2γ/z of e^s.

    It is told from the largest in 32 blocks, each z spreads out.
    """
    given = () if isinstance(row.kernel, RowMap) else classes.classify_tokens(row, n).classes
    laws = [law[1:3] for law in given if law[2] and law[3] is None]
    if not laws:
        return 0.0
    z, (beta, gamma) = math.sqrt(2 * max(draws - math.log(32), 1)), np.array(laws).T
    ends = np.array([[[-z], [-z - 0.1]], [[z], [z + 0.1]]])  # [sides, ends, 1]
    log_f = numpy_log_abs(row.function)(beta + gamma * ends)
    with np.errstate(invalid="ignore"):  # ln 0 on the side where f is 0
        slopes = 2 * (log_f[:, 1] - log_f[:, 0]) / (0.1 * z)
    return float(slopes[log_f[:, 0] == log_f[:, 0].max(axis=0)].max())  # on the side of the mass


def _refuse_rare_rows(cell: Question, rel_error: float) -> None:
    """Refuse pooled moments that live on rows too rare to be drawn.

    The variance of Σa² over a row is below ΣE a⁴, so its mean takes Σw⁴E f⁴/(Σw²E f²)²/error² rows.
    Under tails that fall like a power E a⁸ has to exist: else it is not normal after any number.
    """
    # Otherwise the sample would look precise, and miss the rows that make the mean: a false alarm.
    n = cell.length or ANY_LENGTH
    scatter = _log_scatter(cell.row, n)
    numbers = scatter - 2 * math.log(2 * rel_error)  # log
    if numbers > math.log(MOST_SCORES):
        shown = f"e^{numbers:.0f}" if numbers > 600 else f"{math.exp(numbers):.1g}"
        fix = f"its pooled moments take {shown} draws; rows of n are checked without them"
        raise InputError("row", cell.row, fix)
    index = _tail_index(cell.row, n, numbers)
    if index > _MOST_OF_TAIL:
        fix = f"its pooled moments have a tail of index {index:.2f}, too near 0.5 for draws to tell"
        raise InputError("row", cell.row, f"{fix}; rows of n are checked without them")
