"""The cross-check agrees with the right theory, and rejects every planted wrong one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import erf
from scipy.stats import chi2, norm, t, ttest_1samp

from sparsity import InputError, Row, evaluate, exact, verify
from sparsity.crosscheck import reference_grid
from sparsity.crosscheck import verify as crosscheck
from sparsity.crosscheck.cells import Question, feature_ratio
from sparsity.crosscheck.outcome import compare_mean, detecting
from sparsity.crosscheck.reference_grid import features, of_rows, retention, scalar, whole_keys
from sparsity.crosscheck.verify import check, check_exact, judge
from sparsity.kernels import decayed, exp, identity, relu2
from sparsity.kernels.queries import norm_ratio


def test_the_mean_of_draws_is_compared_by_students_t():
    draws = np.random.default_rng(0).standard_normal(50) + 0.3
    z, critical = compare_mean(draws, 0.1, 1e-3)
    assert z == pytest.approx(ttest_1samp(draws, 0.1).statistic)
    assert 2 * t.sf(critical, 49) == pytest.approx(1e-3)


def test_a_row_is_drawn_until_an_error_would_be_seen_and_hardly_further():
    asked = 1e-3
    estimate = of_rows(Row(exp, gamma=0.5), 16).sample(detecting(asked, 1e-6, 0, np.float32))
    of_batches = -t.ppf(5e-7, estimate.dof) + t.ppf(0.999, estimate.dof)
    assert estimate.stopped == "target reached"
    assert 0.85 * asked < of_batches * estimate.rel_stderr <= asked
    # An error bar from a few batches has to be smaller than one that is known well.
    few, many = (detecting(asked, 1e-6, 0, None).aim(dof) for dof in (31, 10**6))
    assert few < 0.9 * many < asked / (-norm.ppf(5e-7) + norm.ppf(0.999))


GRID = reference_grid.reference_grid()
# Cells of the grid that errors are planted in, below.
SCALAR_RELU2 = [scalar(relu2, beta=b, gamma=1.0) for b in (-2.0, -0.5, 0.5, 2.0)]
SCALAR_IDENTITY = [scalar(identity, beta=b, gamma=1.0) for b in (0.5, 1.0, 2.0)]
SCALAR_EXP = [scalar(exp, beta=b, gamma=g) for b, g in ((-2, 0.5), (3, 4))]
DECAYED = [scalar(decayed, decay=0.9, length=n) for n in (10, 1000)]
FEATURES = [features("relu", 0.0, 1.0, 8, "uniform")]
ROWS = [of_rows(Row(relu2, beta=2, gamma=1), 64)]
RETENTION = [retention(exp, 0, 0.5, 16, 0.9)]
PLANTED_IN = [
    *SCALAR_RELU2, *SCALAR_IDENTITY, *SCALAR_EXP, *DECAYED, *FEATURES, *ROWS, *RETENTION,
]  # fmt: skip


@pytest.fixture(scope="module")
def run() -> crosscheck.CrossCheck:
    """`verify` over the cells that errors are planted in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference_grid, "reference_grid", lambda only: tuple(PLANTED_IN))
        return verify(seed=1)


def holds(run: dict[str, Any]) -> None:
    """Everything agrees, could have disagreed, and every route, kernel and quantity is there."""
    cells = run["cells"]
    assert run["agree"], run["disagreements"]
    assert len(cells) == run["exact_cells"] + len(GRID)
    assert run["exact_cells"] >= 140
    assert run["false_alarm_rate"] <= 1e-4
    assert run["smallest_detectable"] <= 2e-3
    drawn = [cell for cell in cells if "estimate" in cell]
    assert len(drawn) == len(GRID) >= 180
    assert all(cell["detectable"] <= 2e-3 for cell in drawn)
    assert all(cell["estimate"]["warning"] is None for cell in drawn)
    assert {cell["quantity"] for cell in drawn} == {cell.quantity for cell in GRID}
    routes = {cell["route"] for cell in drawn}
    assert routes == {
        "scalar-stratified", "position-stratified", "full-keys", "rows",
        "features-relu", "features-exp", "features-elu+1", "features-softplus",
        "rows-law", "rows-drawn", "rows-sphere", "rows-rope", "rows-coca", "rows-slack",
    }  # fmt: skip
    assert {cell["kernel"] for cell in drawn} == {
        "exp", "relu2", "identity", "nonnegative", "decayed", "entmax1.5", "exp capped at 1",
        "tile-softmax:2",
    }  # fmt: skip

    # Neither too large (a biased route) nor too small (an inflated error bar, or a shared one):
    # χ² of the z-scores at a two-sided false-alarm rate of 1e−6.
    z = np.array([cell["z"] for cell in drawn if cell["estimate"]["rel_stderr"] > 1e-9])
    assert len(z) >= 150
    total = float(np.sum(z**2))
    assert chi2.ppf(5e-7, len(z)) < total < chi2.isf(5e-7, len(z)) * 1.1  # t is wider than normal


def test_everything_agreed_and_could_have_disagreed():
    """Of the run that is committed, which `sparsity reproduce --check` holds to be current."""
    path = Path(__file__).parents[1] / "figures" / "crosscheck.json"
    run = json.loads(path.read_text("utf-8"))
    holds(run)
    run["cells"][0]["detectable"] = 0.1
    with pytest.raises(AssertionError):
        holds(run)


@pytest.mark.thorough
def test_summary_counts(run):
    summary = run.summary()
    assert summary["cells"] == len(run.cells)
    assert summary["disagreements"] == []
    assert "AGREE" in run.text()


# Planted errors. Each is a theory that is wrong for one kernel, and the cells it must fail on:
# those of the grid are drawn once. It has no whole keys under squared ReLU with γ ≠ 1 and β ≠ 0.

KEYS = [whole_keys(relu2, 1.0, 2.0, 2)]


def moments(z: float, Phi: Callable[[float], Any] = norm.cdf) -> tuple[float, float]:
    """The truncated moments 2 and 4 of relu² at γ = 1, written out for planting errors in."""
    phi = float(norm.pdf(z))
    P = float(Phi(z))
    return ((z**2 + 1) * P + z * phi, (z**4 + 6 * z**2 + 3) * P + z * (z**2 + 5) * phi)


def of_z(cell: Question) -> float:
    return cell.parameters["beta"] / cell.parameters["gamma"]


def lost_root(cell: Question) -> float:
    m2, m4 = moments(of_z(cell))
    return math.log(m2 / m4)


def reflected_cdf(cell: Question) -> float:
    m2, m4 = moments(of_z(cell), lambda z: norm.cdf(-z))
    return math.log(abs(m2) / math.sqrt(abs(m4)))


def identity_with(erf_argument: float):
    def wrong(cell: Question) -> float:
        z = of_z(cell)
        top = math.sqrt(2 / math.pi) * math.exp(-z * z / 2) + z * float(erf(z * erf_argument))
        return math.log(top / math.hypot(z, 1))

    return wrong


def unsigned_mean_lost(cell: Question) -> float:
    z = of_z(cell)
    return math.log(abs(z) / math.hypot(z, 1))


def decayed_with(numerator_power: float):
    def wrong(cell: Question) -> float:
        x, n = cell.parameters["decay"], cell.parameters["length"]
        top = (1 - x ** (numerator_power * n)) * (1 + x)
        return math.log(top / (n * (1 - x) * (1 + x**n))) / 2

    return wrong


def nonnegative_with(change: Callable[[float, float], float]):
    """log S with the wrong combination of ratio and ρ in place of (ratio · ρ)²."""

    def wrong(cell: Question) -> float:
        ratio = feature_ratio(*cell.given.values())
        rho = float(norm_ratio(cell.parameters["query"], cell.parameters["dim"]))
        return -0.5 * math.log1p(change(ratio, rho))

    return wrong


def rows_as_limit(cell: Question) -> float:
    """The limit law n S² in place of the exact law at n."""
    p = cell.parameters
    value = evaluate(cell.kernel, beta=p["beta"], gamma=p["gamma"])
    return math.log(p["length"]) + 2 * float(value.log_S)


def rows_off_by_one(cell: Question) -> float:
    p = cell.parameters
    law = exact(cell.kernel, length=p["length"] - 1, beta=p["beta"], gamma=p["gamma"])
    return float(law.log_value)


PLANTED = {
    "relu2: lost square root": (SCALAR_RELU2, lost_root),
    "relu2: Phi(-z) for Phi(z)": (SCALAR_RELU2, reflected_cdf),
    "relu2: gamma squared for gamma, whole keys": (
        KEYS,
        lambda c: float(evaluate(relu2, beta=c.parameters["beta"], gamma=4.0).log_S),
    ),
    "identity: erf(z) for erf(z / sqrt 2)": (SCALAR_IDENTITY, identity_with(1.0)),
    "identity: signed mean, |a| lost": (SCALAR_IDENTITY, unsigned_mean_lost),
    "exp: -gamma^2 for -gamma^2 / 2": (SCALAR_EXP, lambda c: -(c.parameters["gamma"] ** 2)),
    "decayed: lambda^(2n) for lambda^n": (DECAYED, decayed_with(2.0)),
    "nonnegative: the two norms of q swapped": (
        FEATURES,
        nonnegative_with(lambda ratio, rho: (ratio / rho) ** 2),
    ),
    "nonnegative: rho for rho^2": (FEATURES, nonnegative_with(lambda r, rho: r**2 * rho)),
    "rows: the limit law at finite n": (ROWS, rows_as_limit),
    "rows: n - 1 for n": (ROWS, rows_off_by_one),
    "retention: the decay's factor lost": (
        RETENTION,
        lambda c: float(evaluate(exp, gamma=0.5).log_S),
    ),
}


def test_the_written_out_moments_are_right_where_nothing_is_planted():
    """Else a planted error might be rejected for a slip of its own."""
    for cell in SCALAR_RELU2:
        m2, m4 = moments(of_z(cell))
        assert math.log(m2 / math.sqrt(m4)) == pytest.approx(cell.theory(), abs=1e-12)
    for cell in SCALAR_IDENTITY:
        assert identity_with(math.sqrt(0.5))(cell) == pytest.approx(cell.theory(), abs=1e-12)
    for cell in DECAYED:
        assert decayed_with(1.0)(cell) == pytest.approx(cell.theory(), abs=1e-12)
    for cell in FEATURES:
        right = nonnegative_with(lambda ratio, rho: (ratio * rho) ** 2)
        assert right(cell) == pytest.approx(cell.theory(), abs=1e-12)


_FAMILIES = {id(cells): cells for cells, _ in PLANTED.values()}


@pytest.fixture(scope="module")
def drawn(run) -> dict[Question, Any]:
    """The estimate of every cell that errors are planted in; the right theory agrees with it."""
    judged = dict(zip(PLANTED_IN, run.cells, strict=True))
    judged |= dict(zip(KEYS, check(KEYS, seed=2, whole_dtype=np.float32), strict=True))
    planted = [cell for cells in _FAMILIES.values() for cell in cells]
    assert len(planted) == 15
    assert [judged[cell].verdict for cell in planted] == ["agree"] * 15
    return {cell: judged[cell].estimate for cell in planted}


@pytest.mark.thorough
@pytest.mark.parametrize("name", PLANTED)
def test_planted_error_is_rejected(name, drawn):
    """The wrong theory, on the samples with which the right one agrees."""
    cells, wrong = PLANTED[name]
    planted = check(cells, theory=wrong, sample=lambda cell, _: drawn[cell])
    assert any(cell.verdict == "disagree" for cell in planted), planted


@pytest.mark.thorough
def test_a_relative_error_of_2e_3_is_seen_in_every_scalar_cell(drawn):
    cells = [*SCALAR_RELU2, *SCALAR_IDENTITY, *SCALAR_EXP, *DECAYED]
    given: Any = {"sample": lambda cell, _: drawn[cell]}
    planted = check(cells, theory=lambda cell: cell.theory() + 2e-3, **given)
    assert [cell.verdict for cell in planted] == ["disagree"] * 11


@pytest.mark.thorough
def test_an_untrusted_or_imprecise_estimate_is_not_agreement(drawn):
    cell = SCALAR_EXP[0]
    assert judge(cell, cell.theory(), drawn[cell], 1e-6).verdict == "agree"
    doubtful = replace(drawn[cell], warning="planted")
    imprecise = replace(drawn[cell], rel_stderr=1e-2)
    broken = replace(drawn[cell], log_value=math.nan)
    for estimate in (doubtful, imprecise, broken):
        verdict = judge(cell, cell.theory(), estimate, 1e-6).verdict
        assert verdict == "not enough evidence"


def test_closed_form_against_quadrature_rejects_a_planted_form(monkeypatch):
    from sparsity.limit import closed_form

    point = [Question(Row(relu2, beta=-0.5, gamma=1.0), ("closed form", "quadrature"))]
    assert check_exact(point)[0].verdict == "agree"
    planted = {relu2.weight: lambda beta, gamma: np.asarray(math.log(0.3))}
    monkeypatch.setattr(closed_form, "FORMS", {**closed_form.FORMS, **planted})
    assert check_exact(point)[0].verdict == "disagree"


def test_false_alarm_rate_is_checked():
    with pytest.raises(InputError, match="false_alarm_rate = 2"):
        verify(false_alarm_rate=2)


def test_same_seed_same_bits_whatever_the_threads():
    first = check(SCALAR_RELU2, seed=5)
    again = [check([cell], seed=5) for cell in SCALAR_RELU2[:1]]
    assert first[0].estimate.log_value == again[0][0].estimate.log_value
