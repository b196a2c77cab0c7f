"""What a claim is, where its numbers come from, what they are called, and how they are tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import mpmath
import numpy as np
import sympy

from sparsity import derivation, metric
from sparsity.claims_ledger.findings import ALARM, RULE, Judged, verdict
from sparsity.crosscheck.outcome import compare
from sparsity.exact_law.exact import exact
from sparsity.kernels import Kernel
from sparsity.kernels.lowering import numpy_log_abs
from sparsity.limit import evaluation
from sparsity.output import json_ready
from sparsity.results import Estimate
from sparsity.sampling import Sampling, estimators
from sparsity.sampling.row_sampling import sample_rows


def _log_S(kernel: str | Kernel, **parameters: Any) -> np.ndarray:
    return evaluation.evaluate(kernel, **parameters).log_S


def _mean(kernel: str | Kernel, length: Any, of: str, **parameters: Any) -> np.ndarray:
    return exact(kernel, length=length, of=of, **parameters).value


# A route of its own: a test plants a wrong law in one and leaves the other.
_n_eff = partial(_mean, of="n_eff")


def _polynomial_log_S(kernel: Kernel, gamma: float) -> float:
    """Return log S at β = 0 of a positive polynomial weight, by the 65-point Gauss–Hermite rule.

    A rule of m points is exact up to degree 2m − 1 = 129, so for the square of a weight of degree
    64. Nothing else here knows the moments: it checks the quadrature that `log_S` uses.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(65)
    f = np.exp(numpy_log_abs(kernel)(gamma * nodes))
    # The weights sum to W = √(2π), not to 1: S = (Σwf/W)/√(Σwf²/W) = Σwf/√(W·Σwf²).
    return float(np.log(metric.from_moments(weights @ f, weights @ f**2 * weights.sum())))


def _norm_ratio(q: np.ndarray) -> np.ndarray:
    """Return ‖q‖₂/‖q‖₁ along the last axis, which is 1/(√d S) by the definition of S."""
    return q.shape[-1] ** -0.5 / metric.S(q)


@dataclass(frozen=True)
class Routes:
    """Routes say where the judges take their quantities from.

    A test plants wrong ones, "worlds" in which a claim is false, and sees that its verdict flips: a
    judge that would say "confirmed" whatever the numbers are shows itself there.

    Args:
        log_S: theory, (kernel, **parameters) -> log S.
        derive: the SymPy derivation of a kernel, its limits apart.
        polynomial_log_S: (kernel, gamma) -> log S at β = 0 of a positive polynomial weight.
        n_eff: the exact law, (kernel, length, **parameters) -> effective number of tokens.
        mean: the exact law of any quantity, (kernel, length, of, **parameters).
        full_keys: S from whole keys.
        rows: averages over whole rows.
        norm_ratio: ‖q̃‖₂/‖q̃‖₁ of concrete queries.
    """

    log_S: Callable[..., np.ndarray] = _log_S
    derive: Callable[..., derivation.Derivation] = derivation.without_limits
    polynomial_log_S: Callable[..., float] = _polynomial_log_S
    n_eff: Callable[..., np.ndarray] = _n_eff
    mean: Callable[..., np.ndarray] = _mean
    full_keys: Callable[..., Estimate] = estimators.full_keys
    rows: Callable[..., Estimate] = sample_rows
    norm_ratio: Callable[..., np.ndarray] = _norm_ratio


# What `z_tests` gives, the parameters of rows, and what several judges return under one name are
# called the same in every claim, unless its own legend has another word.
_COMMON_LABELS = {
    "lengths": "length n",
    "dims": "dimension d",
    "ratios": "length over 8192",
    "sizes": "keys of a block B",
    "n_eff": "n_eff, exact law",
    "beta": "bias β",
    "gamma": "spread γ",
    "decay": "decay λ",
    "ratio": "noise to signal σ̃/μ̃",
    "dim": "dimension d",
    "n": "row length n",
    "sampling": "Theory against sampling",
    "cells": "Every comparison",
    "stderr": "standard error",
    "critical": "|z| allowed",
    "largest_abs_z": "largest |z|",
    "largest_ratio": "largest ratio",
    "false_alarm_rate": "chance of a false alarm",
    "smallest_detectable": "relative error that would show",
}
# Errors, and what is in units of them, are themselves known to two or three digits.
_COMMON_ROUGH = ("z", "critical", "largest_abs_z", "stderr", "smallest_detectable")


@dataclass(frozen=True)
class Claim:
    """A claim is what a source says, with the judge that decides it.

    Args:
        key: the short name that `claims` takes.
        source: where the claim is made.
        statement: what it says, in a sentence.
        formula: the formula at stake.
        proof: why the outcome is what it is, where there is a proof; its steps are findings.
        judge: (routes, seed) -> (findings, numbers); the verdict follows from the findings, and the
            numbers may hold arrays.
        routes: makes the routes that the judge takes, unless others are given.
        labels: what its numbers are called where they are shown: name -> words, symbol and unit.
        rough: which of them are shown with three digits, which say enough.
    """

    key: str
    source: str
    statement: str
    formula: str
    proof: str
    judge: Callable[[Any, int], Judged]
    routes: Callable[[], Any] = Routes
    labels: Mapping[str, str] = field(default_factory=dict)
    rough: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Claim({self.key!r}: {self.statement})"

    def words(self, name: str) -> str:
        """Return the words of a number; an unknown name is written with spaces."""
        return self.labels.get(name) or _COMMON_LABELS.get(name) or name.replace("_", " ")

    def digits(self, name: str) -> int:
        """Return how many digits of a number are shown."""
        return 3 if name in self.rough or name in _COMMON_ROUGH else 6

    def record(self, routes: Any = None, seed: int = 0) -> dict[str, Any]:
        """Judge the claim.

        Returns:
            A JSON-ready record: key, source, claim, formula, verdict, explanation, evidence.
        """
        findings, numbers = self.judge(routes or self.routes(), seed)
        # What speaks against the claim comes first, then what holds in its place.
        failed = [f.statement for f in findings if f.role != "instead" and not f.holds]
        besides = [f.statement for f in findings if f.role == "instead" and f.holds]
        explanation = "All findings hold." if not failed else "Not so: " + "; ".join(failed) + "."
        if besides:
            explanation += " Holds: " + "; ".join(besides) + "."
        return {
            "key": self.key,
            "source": self.source,
            "claim": self.statement,
            "formula": self.formula,
            "verdict": verdict(findings),
            "explanation": explanation,
            "evidence": {
                "rule": RULE,
                "findings": [asdict(f) for f in findings],
                "proof": self.proof,
                "numbers": json_ready(numbers),
            },
        }


def seeds_of_claim(seed: int, claim: int, count: int) -> list[int]:
    """Return seeds for the estimates of a claim, unlike those of all other claims.

    Args:
        seed: the seed of the record.
        claim: a number of the claim's own; it must stay, as the records' numbers follow from it.
        count: how many.
    """
    return np.random.SeedSequence([seed, claim]).generate_state(count).tolist()


def sampling(rel_error: float, key: int) -> Sampling:
    """Return settings for an estimate of this relative error, from the seed `key`.

    Draws are in single precision, so that the record is the same whether or not JAX has float64
    enabled. The budget ends a run that cannot reach its error, as in a planted world.
    """
    return Sampling(rel_error=rel_error, max_samples=5e7, seed=key, dtype=np.float32)


def same_function(S: Any, log_S: Callable[..., Any], symbol: Any, points: Sequence[float]) -> bool:
    """Return whether the derived S is what the evaluated log S says at some points.

    The derivation is evaluated by mpmath in 30 digits: its textbook forms lose digits to
    cancellation in double precision, such as 1 + erf(z/√2) at z = −3.
    """
    exact = sympy.lambdify([symbol], sympy.log(S), "mpmath")
    with mpmath.workdps(30):
        derived = [float(exact(mpmath.mpf(x))) for x in points]
    return bool(np.allclose(derived, log_S(np.asarray(points)), rtol=1e-12, atol=1e-13))


def z_tests(
    cells: Sequence[tuple[Mapping[str, Any], float, Estimate]],
) -> tuple[bool, dict[str, Any]]:
    """Compare log Ŝ with theory in standard errors, two-sided Student's t at `ALARM`/cells each.

    An agreement is worth no more than the error it would have shown, so that is returned as well.

    Args:
        cells: (labels, theoretical log value, estimate).

    Returns:
        Whether every |z| is below its critical value and every error bar can be trusted; and the
        cells with the thresholds, JSON-ready.
    """
    rows, detectable = [], 0.0
    for labels, theory, estimate in cells:
        z, critical, seen = compare(theory, estimate, ALARM / len(cells))
        detectable = max(detectable, seen)
        rows.append(
            {
                **labels,
                "theory": float(np.exp(theory)),
                "estimate": estimate.value,
                "stderr": estimate.stderr,
                "z": z,
                "critical": critical,
                # Where an estimate warns of its own error bar, a small |z| is no agreement.
                "agrees": bool(estimate.trusted and abs(z) <= critical),
            }
        )
    numbers = {
        "cells": rows,
        "largest_abs_z": max(abs(row["z"]) for row in rows),
        "false_alarm_rate": ALARM,
        "smallest_detectable": detectable,
    }
    return all(row["agrees"] for row in rows), numbers
