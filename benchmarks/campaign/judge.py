"""What the library says of a stored cell, and whether that holds against the reference."""

from __future__ import annotations

import math
import re
import time
import warnings
from dataclasses import dataclass

from mpmath import mp, mpf

from benchmarks.campaign.cells import Cell, parse

__all__ = ["Answer", "Verdict", "ask", "judge"]

SPARE = mpf("1e-30")  # of the reference itself
MUST_REFUSE = ("infinite", "not real")


@dataclass(frozen=True)
class Answer:
    """The library's answer: a value with its bound, or why there is none.

    Args:
        log_S, bound: hexadecimal floats, or None.
        reason: why it was refused; "" for a value.
        crash: an exception that is no refusal.
        seconds: of processors.
    """

    log_S: str | None
    bound: str | None
    reason: str
    crash: str
    seconds: float


@dataclass(frozen=True)
class Verdict:
    """One cell, judged.

    Args:
        outcome: "agreed", "violated", "refused", "refused rightly", "unjudged", "crashed", "late".
        gap: |Δ log S|, or inf; `bound` likewise.
    """

    cell: Cell
    outcome: str
    gap: float
    bound: float
    reason: str
    seconds: float
    answer: Answer | None = None


def ask(kernel: str, beta: str, gamma: str) -> Answer:
    """Evaluate a cell with the library, in a process that may do nothing else."""
    from sparsity import evaluate
    from sparsity.errors import InputError
    from sparsity.kernels import score_kernel

    warnings.simplefilter("ignore")
    expression = parse(kernel)
    start = time.process_time()
    log_S = bound = None
    reason = crash = ""
    try:
        record = score_kernel("campaign", expression)
        found = evaluate(record, beta=float.fromhex(beta), gamma=float.fromhex(gamma))
        log_S, bound = float(found.log_S).hex(), float(found.error_bound).hex()
    except InputError as error:
        reason = _short(error.fix)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is counted
        crash = f"{type(error).__name__}: {error}"[:120]
    return Answer(log_S, bound, reason, crash, time.process_time() - start)


def _short(fix: str) -> str:
    """A refusal's text to its first colon, without its numbers."""
    return re.sub(r"-?\d[\d.e+-]*", "#", fix.split(":")[0])[:80]


def judge(cell: Cell, answer: Answer | None) -> Verdict:
    """Hold an answer (None: it came too late) against the cell's reference."""
    gap = bound = math.inf
    if answer is None:
        return Verdict(cell, "late", gap, bound, "", math.nan)
    if answer.crash:
        return Verdict(cell, "crashed", gap, bound, answer.crash, answer.seconds)
    impossible = cell.method in MUST_REFUSE
    unknown = cell.log_S is None and not impossible
    if answer.log_S is None or answer.bound is None:
        outcome = "unjudged" if unknown else "refused rightly" if impossible else "refused"
        return Verdict(cell, outcome, gap, bound, answer.reason, answer.seconds)
    bound = float.fromhex(answer.bound)
    if cell.log_S is None:
        outcome = "violated" if impossible else "unjudged"
        return Verdict(cell, outcome, gap, bound, cell.method, answer.seconds, answer)
    with mp.workdps(60):
        exact = abs(mpf(float.fromhex(answer.log_S)) - mpf(cell.log_S))
        gap = float(exact)
        holds = exact <= mpf(bound) + SPARE  # a NaN holds nothing
    return Verdict(cell, "agreed" if holds else "violated", gap, bound, "", answer.seconds, answer)
