"""What a claim is, where its numbers come from, and the rule that turns findings into a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import mpmath
import numpy as np
import sympy

from sparsity import derivation, metric
from sparsity.crosscheck.ztest import compare
from sparsity.exact_law.exact import exact
from sparsity.kernels import Kernel
from sparsity.kernels.lowering import numpy_log_abs
from sparsity.limit import evaluation
from sparsity.output import json_ready
from sparsity.results import Estimate
from sparsity.sampling import Sampling, estimators
from sparsity.sampling.row_sampling import sample_rows

ALARM = 1e-4  # probability that chance alone changes any statistical finding of one claim

VERDICTS = ("confirmed", "refined", "reported", "refuted")
RULE = (
    "refuted if a finding of its core fails; refined if the core holds and a finding of its letter "
    "fails; confirmed if all hold. It is reported, not confirmed, where one of them only reads "
    "published numbers that are not recomputed here; where those speak against it, it is refuted. "
    "What holds instead, or besides, does not enter."
)
_ROLES = ("core", "reported", "letter", "instead")


@dataclass(frozen=True)
class Finding:
    """One thing that a computation decides.

    Args:
        role: "core" (what the claim says), "reported" (what numbers say that others published and
            nothing here recomputes), "letter" (what it says if read without conditions) or
            "instead" (what holds in its place, or besides).
        statement: a sentence that is true or false.
        holds: which of the two, from the numbers.
    """

    role: str
    statement: str
    holds: bool | np.bool

    def __post_init__(self) -> None:
        """Keep `holds` a plain bool, for JSON."""
        if self.role not in _ROLES:
            raise ValueError(f"role {self.role!r} is not one of {_ROLES}")
        object.__setattr__(self, "holds", bool(self.holds))


core, reported, letter, instead = (partial(Finding, role) for role in _ROLES)  # (statement, holds)
Judged = tuple[list[Finding], dict[str, Any]]  # what was found, and the numbers behind it


def joined(*parts: Judged) -> Judged:
    """The findings of several parts of a claim, by role, and all their numbers."""
    findings = [finding for found, _ in parts for finding in found]
    numbers = {name: value for _, more in parts for name, value in more.items()}
    return sorted(findings, key=lambda finding: _ROLES.index(finding.role)), numbers


def verdict(findings: Sequence[Finding]) -> str:
    """Apply `RULE`.

    Returns:
        One of `VERDICTS`.
    """
    held = {role: all(f.holds for f in findings if f.role == role) for role in _ROLES}
    if not (held["core"] and held["reported"]):
        return "refuted"
    if not held["letter"]:
        return "refined"
    return "reported" if any(f.role == "reported" for f in findings) else "confirmed"


def counted_verdicts(verdicts: Sequence[str]) -> str:
    """Say how many verdicts there are of each kind; of "reported" only where there is one."""
    counts = {v: verdicts.count(v) for v in VERDICTS}
    return ", ".join(f"{n} {v}" for v, n in counts.items() if n or v != "reported")


def _log_S(kernel: str | Kernel, **parameters: Any) -> np.ndarray:
    return evaluation.evaluate(kernel, **parameters).log_S


def _n_eff(kernel: str | Kernel, length: Any, **parameters: Any) -> np.ndarray:
    return exact(kernel, length=length, **parameters).value


def _mean(kernel: str | Kernel, length: Any, of: str, **parameters: Any) -> np.ndarray:
    return exact(kernel, length=length, of=of, **parameters).value


def _polynomial_log_S(kernel: Kernel, gamma: float) -> float:
    """Log S at β = 0 of a positive polynomial weight, by the 65-point Gauss–Hermite rule.

    The rule is exact up to degree 129, so for weights up to degree 64.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(65)
    f = np.exp(numpy_log_abs(kernel)(gamma * nodes))
    return float(np.log(metric.from_moments(weights @ f, weights @ f**2 * weights.sum())))


def _norm_ratio(q: np.ndarray) -> np.ndarray:
    """‖q‖₂/‖q‖₁ along the last axis."""
    return q.shape[-1] ** -0.5 / metric.S(q)


@dataclass(frozen=True)
class Routes:
    """Where the judges take their quantities from; a test plants wrong ones to see verdicts flip.

    Args:
        log_S: theory, (kernel, **parameters) -> log S.
        derive: the SymPy derivation of a kernel, its limits apart.
        polynomial_log_S: (kernel, gamma) -> log S at β = 0 of a positive polynomial weight.
        n_eff: the exact law, (kernel, length, **parameters) -> effective number of tokens.
        mean: the exact law of any quantity, (kernel, length, of, **parameters).
        full_keys: S from whole keys.
        features: S from real nonnegative features.
        rows: averages over whole rows.
        row_sparsity: the metric of a concrete row.
        norm_ratio: ‖q̃‖₂/‖q̃‖₁ of concrete queries.
    """

    log_S: Callable[..., np.ndarray] = _log_S
    derive: Callable[..., derivation.Derivation] = derivation.without_limits
    polynomial_log_S: Callable[..., float] = _polynomial_log_S
    n_eff: Callable[..., np.ndarray] = _n_eff
    mean: Callable[..., np.ndarray] = _mean
    full_keys: Callable[..., Estimate] = estimators.full_keys
    features: Callable[..., Estimate] = estimators.features
    rows: Callable[..., Estimate] = sample_rows
    row_sparsity: Callable[..., Any] = metric.S
    norm_ratio: Callable[..., np.ndarray] = _norm_ratio


# What `z_tests` gives, and the parameters of rows, are called the same in every claim.
_COMMON_LABELS = {
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
    "false_alarm_rate": "chance of a false alarm",
    "smallest_detectable": "relative error that would show",
}
_COMMON_ROUGH = ("z", "critical", "largest_abs_z", "stderr", "smallest_detectable")


@dataclass(frozen=True)
class Legend:
    """What a reader is told of the numbers that a judge returns; it changes none of them.

    Args:
        labels: name of a number -> its words, with symbol and unit.
        columns: lists that run together, each group the columns of one table.
        grids: name of a list of lists -> the names of what runs along its rows and its columns.
        rough: names of numbers of which three digits say enough.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[tuple[str, ...], ...] = ()
    grids: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    rough: tuple[str, ...] = ()

    def knows(self, name: str) -> bool:
        """Whether a number has words of its own."""
        return name in self.labels or name in _COMMON_LABELS

    def words(self, name: str) -> str:
        """Return the words of a number; an unknown name is written with spaces."""
        return self.labels.get(name) or _COMMON_LABELS.get(name) or name.replace("_", " ")

    def digits(self, name: str) -> int:
        """Return how many digits of a number are shown."""
        return 3 if name in self.rough or name in _COMMON_ROUGH else 6


@dataclass(frozen=True)
class Claim:
    """A source's claim as an executable record.

    Args:
        key: short name.
        source: where it is made.
        statement: what it says.
        formula: the formula at stake.
        proof: why the outcome is what it is, where there is a proof; its steps are findings.
        judge: (routes, seed) -> (findings, numbers); the verdict follows from the findings, and the
            numbers may hold arrays.
        routes: makes the routes that the judge takes, unless others are given.
        legend: what the numbers are called where they are shown.
    """

    key: str
    source: str
    statement: str
    formula: str
    proof: str
    judge: Callable[[Any, int], Judged]
    routes: Callable[[], Any] = Routes
    legend: Legend = Legend()

    def record(self, routes: Any = None, seed: int = 0) -> dict[str, Any]:
        """Judge the claim.

        Returns:
            A JSON-ready record: key, source, claim, formula, verdict, explanation, evidence.
        """
        findings, numbers = self.judge(routes or self.routes(), seed)
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


def sampling(rel_error: float, key: int) -> Sampling:
    """Single precision, so that the record is the same whether or not JAX has float64 enabled."""
    return Sampling(rel_error=rel_error, max_samples=5e7, seed=int(key), dtype=np.float32)


def same_function(S: Any, log_S: Callable[..., Any], symbol: Any, points: Sequence[float]) -> bool:
    """Whether the derived S, in 30 digits, is what the evaluated log S says at some points."""
    exact = sympy.lambdify([symbol], sympy.log(S), "mpmath")
    with mpmath.workdps(30):
        derived = [float(exact(mpmath.mpf(x))) for x in points]
    return bool(np.allclose(derived, log_S(np.asarray(points)), rtol=1e-12, atol=1e-13))


@dataclass(frozen=True)
class ZTest:
    """Theory against sampling, cell by cell, with a family-wise false-alarm rate.

    Args:
        agree: whether every |z| is below its critical value and every error bar can be trusted.
        detectable: the relative error that every cell would have seen with probability 0.999.
        numbers: the cells and the thresholds, JSON-ready.
    """

    agree: bool
    detectable: float
    numbers: dict[str, Any]


def z_tests(cells: Sequence[tuple[Mapping[str, Any], float, Estimate]]) -> ZTest:
    """Compare log Ŝ with theory in standard errors, two-sided Student's t at `ALARM`/cells each.

    Args:
        cells: (labels, theoretical log value, estimate).
    """
    rows, detectable, agree = [], 0.0, True
    for labels, theory, estimate in cells:
        z, critical, seen = compare(theory, estimate, ALARM / len(cells))
        ok = bool(estimate.trusted and abs(z) <= critical)
        agree, detectable = agree and ok, max(detectable, seen)
        rows.append(
            {
                **labels,
                "theory": float(np.exp(theory)),
                "estimate": estimate.value,
                "stderr": estimate.stderr,
                "z": z,
                "critical": critical,
                "agrees": ok,
            }
        )
    numbers = {
        "cells": rows,
        "largest_abs_z": max(abs(row["z"]) for row in rows),
        "false_alarm_rate": ALARM,
        "smallest_detectable": detectable,
    }
    return ZTest(agree, detectable, numbers)
