"""Claims: the verdicts follow from the evidence, and a planted wrong world changes each of them."""

import functools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import sympy

from sparsity import InputError, Row, claims, evaluate, kernels, rounding
from sparsity import claims_ledger as ledger
from sparsity.claims_ledger import article_linear, article_matrices
from sparsity.claims_ledger.findings import Finding, verdict
from sparsity.claims_ledger.judging import Claim, Routes, z_tests
from sparsity.kernels.symbols import beta, decay, gamma, n
from sparsity.output import json_ready
from sparsity.sampling import estimators

CLAIM = {claim.key: claim for claim in ledger.ALL}
EXPECTED = {  # those of sinks are in test_mixing.py, of CoCA in test_rotary.py
    "isotropy": "confirmed",
    "exp": "refined",
    "relu2": "confirmed",
    "identity": "confirmed",
    "nonnegative": "confirmed",
    "dimension": "refuted",
    "softmax-gap": "refined",
    "decay": "confirmed",
    "absolute-position": "refined",
    "masked-rank": "refined",
}


@functools.cache
def few_rows(row, length, how):
    """Whole rows, drawn once for all worlds that leave them alone; no verdict hangs on digits."""
    return Routes().rows(row, length, replace(how, rel_error=max(how.rel_error, 0.02)))


HONEST = replace(Routes(), rows=few_rows)


def printed(record):
    """As `sparsity reproduce` writes it."""
    return rounding.record(json_ready(record), digits=rounding.DIGITS_OF_DRAWS)


@pytest.fixture
def records(committed_claims):
    return [committed_claims[key] for key in EXPECTED]


def _by_key(records, key):
    return next(r for r in records if r["key"] == key)


def test_the_claims_with_their_verdicts(records):
    assert {r["key"]: r["verdict"] for r in records} == EXPECTED
    sources = [claim.source.split(" (")[0] for claim in ledger.ALL]
    judged = [CLAIM[key].source.split(" (")[0] for key in ("exp", "no-op", "coca-ntk")]
    assert [sources.count(name) for name in judged] == [10, 6, 6]


def test_records_are_json_ready_and_complete(records):
    records = [CLAIM["nonnegative"].record(), *records]
    assert json.loads(json.dumps(records, allow_nan=False)) == records
    for r in records:
        assert {"source", "claim", "formula", "verdict", "explanation", "evidence"} <= set(r)
        findings = r["evidence"]["findings"]
        assert r["verdict"] == verdict([Finding(**f) for f in findings])
        assert any(f["role"] == "core" for f in findings)


def test_everything_said_to_hold_instead_does(records):
    instead = [f for r in records for f in r["evidence"]["findings"] if f["role"] == "instead"]
    assert len(instead) >= 15
    assert all(f["holds"] for f in instead)


def test_the_numbers(records):
    rows = _by_key(records, "exp")["evidence"]["numbers"]["rows"]
    assert [round(row["exact_S_rms"], 5) for row in rows] == [0.61438, 0.11637, 0.06282]
    gap = CLAIM["softmax-gap"].record()["evidence"]["numbers"]
    found = [row["S"] for row in gap["taylor"]]
    # Exact: (E f_p)²/E f_p² is a rational number for Gaussian scores.
    assert found == pytest.approx([_taylor_S(p) for p in (2, 4, 8, 16, 32)], rel=1e-13)
    assert found[:4] == pytest.approx([0.6547, 0.4025, 0.2024, 0.13726], abs=5e-5)
    assert gap["softmax"] == pytest.approx(np.exp(-2))
    rho = _by_key(records, "dimension")["evidence"]["numbers"]["norm_ratio"]
    assert [row["largest"] for row in rho] == pytest.approx([1.0] * 4)


def _taylor_S(p):
    t = sympy.Symbol("t")
    f = sympy.Poly(sum((2 * t) ** r / sympy.factorial(r) for r in range(p + 1)), t)

    def mean(poly):  # E t^k = (k−1)!!
        return sum(c * sympy.factorial2(k - 1) for (k,), c in poly.terms() if k % 2 == 0)

    return float(sympy.sqrt(mean(f) ** 2 / mean(f * f)))


def test_statistical_evidence_is_powerful(records):
    isotropy = _by_key(records, "isotropy")["evidence"]["numbers"]
    assert len(isotropy["cells"]) == 4
    assert {cell["dim"] for cell in isotropy["cells"]} == {1, 16, 128}
    assert sum(cell["mean_across_queries"] > 0.1 for cell in isotropy["cells"]) == 3
    assert isotropy["smallest_detectable"] <= 5e-3
    assert isotropy["false_alarm_rate"] <= 1e-4


def test_the_same_seed_gives_the_same_record(records):
    assert printed(CLAIM["nonnegative"].record(seed=0)) == _by_key(records, "nonnegative")
    assert printed(CLAIM["nonnegative"].record(seed=1)) != _by_key(records, "nonnegative")


def test_table_shows_every_claim_and_finding(records):
    text = " ".join(ledger.table(records, width=10_000).split())
    for r in records:
        assert r["claim"] in text
        for f in r["evidence"]["findings"]:
            assert f["statement"] in text
    assert "10 claims: 5 confirmed, 4 refined, 1 refuted" in text
    assert max(map(len, ledger.table(records, width=60).splitlines())) <= 60


def test_progress_is_reported(monkeypatch):
    monkeypatch.setattr(ledger, "ALL", (CLAIM["dimension"], CLAIM["dimension"]))
    seen = []
    ledger.claims(progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 2), (1, 2), (2, 2)]


def test_claims_can_be_asked_for_by_key(records):
    (one,) = claims("dimension")
    assert printed(one) == _by_key(records, "dimension")
    two = claims("softmax-gap", "dimension")
    assert list(two) == [CLAIM["softmax-gap"].record(), one]
    with pytest.raises(InputError, match=r"key = steep: choose one of .*isotropy, exp, "):
        claims("steep")


# Planted wrong worlds: one quantity is wrong at a time, and the verdict must change.


def _wrong_log_S(name, change):
    """log S of one kernel replaced by change(log S, parameters)."""

    def log_S(kernel, **parameters):
        value = HONEST.log_S(kernel, **parameters)
        record = kernels.named(getattr(kernel, "kernel", kernel))  # of a row its own
        return change(value, parameters) if record.name == name else value

    return replace(HONEST, log_S=log_S)


def _wrong_derivation(name, S):
    def derive(kernel):
        found = HONEST.derive(kernel)
        return replace(found, S=S) if found.kernel.name == name else found

    return replace(HONEST, derive=derive)


def _norm_one_keys(kernel, query, mean, sampling, *, spread=1.0):
    """γ = σ‖q‖₁ in place of σ‖q‖₂, keeping β: whole keys of a law that is not isotropic."""
    factor = np.abs(query).sum(axis=1).mean() / np.linalg.norm(query, axis=1).mean()
    few = replace(sampling, max_samples=1)  # γ is large now: the pilot must do
    return estimators.full_keys(kernel, query, mean, few, spread=spread * factor)


def _short_taylor(kernel, spread):
    """Features that stop improving: the gap is never closed."""
    return max(HONEST.polynomial_log_S(kernel, spread), -1.9)


def _shrinking_in_dim(value, parameters):
    """S as it would be if the norm ratio were √d: ever sparser as d grows."""
    return -0.5 * np.log1p(np.square(parameters["ratio"]) * parameters["dim"])


def _inverted(q):
    return 1 / HONEST.norm_ratio(q)


MATRICES = article_matrices.MatrixRoutes()


def _raised(name, entries):
    """Features far above zero: all queries are nearly alike."""
    return MATRICES.feature(name, entries) + 10


def _noise_of_raised(name):
    nodes, weights = np.polynomial.hermite_e.hermegauss(150)
    h, p = _raised(name, nodes), weights / weights.sum()
    return math.sqrt(p @ h**2 - (p @ h) ** 2) / (p @ h)


def _all_entries(a):
    """What varies over the whole matrix in place of what varies along rows."""
    column, left = MATRICES.parts(a)
    return column, left + MATRICES.parts(a.T)[0]


X = sympy.sqrt(sympy.pi / 2)
REFUTED = [
    ("isotropy", replace(HONEST, full_keys=_norm_one_keys)),
    ("isotropy", _wrong_log_S("relu2", lambda v, p: v + 0.01)),
    ("exp", _wrong_log_S("exp", lambda v, p: np.maximum(v, -20.0))),
    ("exp", _wrong_derivation("exp", sympy.exp(-(gamma**2) / (2 + gamma**2)))),
    ("relu2", _wrong_log_S("relu2",
                           lambda v, p: HONEST.log_S("relu2", **p | {"beta": -p["beta"]}))),
    ("relu2", _wrong_derivation("relu2",
                                sympy.sqrt((1 + beta / sympy.sqrt(beta**2 + gamma**2)) / 6))),
    ("identity", _wrong_log_S("identity", lambda v, p: v - 1e-3)),
    ("identity", _wrong_derivation("identity", 1 / X)),
    ("nonnegative", _wrong_log_S("nonnegative", _shrinking_in_dim)),
    ("softmax-gap", replace(HONEST, polynomial_log_S=_short_taylor)),
    ("decay", _wrong_log_S("decayed", lambda v, p: np.maximum(v, -5.0))),
    ("decay", _wrong_derivation("decayed",
                                sympy.sqrt((1 + decay) / (1 - decay)) * (1 + 1 / n) / 9)),
    ("absolute-position", replace(MATRICES, share=lambda r: 1 / (1 + r))),
    ("absolute-position", replace(MATRICES, parts=_all_entries)),
    ("masked-rank", replace(MATRICES, mask=lambda a: a)),
]  # fmt: skip
CONFIRMED = [
    ("exp", replace(HONEST, n_eff=lambda k, n, gamma: n * np.exp(-(gamma**2)))),
    ("dimension", replace(_wrong_log_S("nonnegative", _shrinking_in_dim), norm_ratio=_inverted)),
    ("softmax-gap", _wrong_log_S("nonnegative", _shrinking_in_dim)),
    ("absolute-position", replace(MATRICES, feature=_raised, noise=_noise_of_raised)),
    ("masked-rank", replace(MATRICES, effective_rank=np.linalg.matrix_rank)),
]
PLANTED = [
    (key, wrong, routes)
    for wrong, worlds in (("refuted", REFUTED), ("confirmed", CONFIRMED))
    for key, routes in worlds
]


def test_every_claim_has_a_planted_world():
    assert {key for key, _, _ in PLANTED} == set(EXPECTED)
    assert all(EXPECTED[key] != wrong for key, wrong, _ in PLANTED)


@pytest.mark.thorough
@pytest.mark.parametrize(("key", "wrong", "routes"), PLANTED)
def test_a_planted_wrong_world_changes_the_verdict(key, wrong, routes):
    assert CLAIM[key].record(routes)["verdict"] == wrong


def test_verdict_rule():
    roles = ("core", "reported", "letter", "instead")
    yes, no = ({r: Finding(r, "", holds) for r in roles} for holds in (True, False))
    assert verdict([yes["core"], yes["letter"], no["instead"]]) == "confirmed"
    assert verdict([yes["core"], no["letter"]]) == "refined"
    assert verdict([yes["core"], no["core"], yes["letter"]]) == "refuted"
    assert verdict([yes["core"], yes["reported"], yes["letter"]]) == "reported"
    assert verdict([yes["core"], yes["reported"], no["letter"]]) == "refined"
    assert verdict([yes["core"], no["reported"]]) == "refuted"
    assert verdict([no["core"], yes["reported"]]) == "refuted"


def test_an_untrusted_estimate_is_not_agreement():
    estimate = HONEST.rows(
        Row("exp", gamma=1.0), 4, estimators.Sampling(rel_error=0.05, dtype=np.float32)
    )
    assert z_tests([({}, estimate.log_value, estimate)])[0]
    assert not z_tests([({}, estimate.log_value, replace(estimate, warning="heavy"))])[0]
    off = estimate.log_value + 10 * estimate.rel_stderr
    assert not z_tests([({}, off, estimate)])[0]


def test_the_numbers_of_matrices(records):
    """The share of the columns with relu features is 1/π; ranks are as drawn apart."""
    numbers = CLAIM["absolute-position"].record()["evidence"]["numbers"]["share"]
    assert [row["feature"] for row in numbers] == ["relu", "elu+1", "softplus", "exp"]
    assert numbers[0]["theory"] == pytest.approx(1 / np.pi, rel=1e-9)
    assert numbers[3]["theory"] == pytest.approx(1 / np.e, rel=1e-9)
    assert all(0 < row["stderr"] < 0.02 for row in numbers)
    ranks = _by_key(records, "masked-rank")["evidence"]["numbers"]["ranks"]
    known = {  # eight matrices of another seed
        ("identity", False): (15.78, 0.01), ("identity", True): (90.46, 0.45),
        ("elu+1", False): (4.06, 0.02), ("elu+1", True): (50.81, 0.17),
        ("exp", False): (112.38, 0.66), ("exp", True): (102.18, 0.64),
    }  # fmt: skip
    assert len(ranks) == len(known) == 6
    for row in ranks:
        value, error = known[row["kernel"], row["masked"]]
        assert abs(row["effective_rank"] - value) < 5 * math.hypot(error, row["stderr"])


def test_norm_bounds_are_proven():
    assert article_linear.norm_bounds()


def test_a_user_can_judge_a_claim_of_his_own():
    def judge(routes, seed):
        S = np.exp(routes.log_S("exp", gamma=2.0))
        return [Finding("core", "S(2) < 0.1", S < 0.1)], {"S": float(S)}

    claim = Claim("mine", "me", "γ = 2 is below 0.1", "S < 0.1", "", judge)
    assert claim.record()["verdict"] == "refuted"
    assert claim.record()["evidence"]["numbers"]["S"] == float(evaluate("exp", gamma=2.0).S)
