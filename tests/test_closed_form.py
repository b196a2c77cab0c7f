"""The closed forms: the accuracy table's claim, held by rigorous balls; what they accept."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import sympy
from scipy.special import erf, ndtr

from benchmarks import certify
from sparsity import InputError, NoClosedForm, estimate, evaluate, kernels
from sparsity.limit import closed_form

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
BOUND = 1e-13
POINTS = 200  # random points a kernel
NAMES = [kernel.name for kernel in kernels.ALL]


def _load_accuracy():
    spec = importlib.util.spec_from_file_location("accuracy", BENCHMARKS / "accuracy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


accuracy = _load_accuracy()


@pytest.mark.slow
def test_random_points():
    rows = [
        accuracy.judge(name, region, parameters)
        for name in NAMES
        for region, parameters in accuracy.draws(name, POINTS, seed=7)
    ]
    assert sum(row["points"] for row in rows) >= 900
    assert [row for row in rows if not row["worst"] <= BOUND] == []


@pytest.mark.parametrize(
    ("name", "points"), [("exp", 12), ("relu2", 72), ("identity", 72), ("decayed", 54)]
)
def test_corners(name, points):
    judged_corners(name, points, list(accuracy.corners(name)))


def judged_corners(name, points, corners):
    rows = [accuracy.judge(name, "corners", each) for each in corners]
    assert sum(row["points"] for row in rows) == points
    assert [row for row in rows if not row["worst"] <= BOUND] == []


def test_corners_of_nonnegative():
    """All of them, but 10⁴ features for 10⁶ where the entries of the query differ."""
    corners = list(accuracy.corners("nonnegative"))
    for each in corners:
        if each["query"] == "half-normal":
            each["dim"] = np.minimum(each["dim"], 1e4)
    judged_corners("nonnegative", 63, corners)


def test_committed_table():
    record = json.loads((BENCHMARKS / "results" / "accuracy.json").read_text())
    rows = record["rows"]
    assert max(row["worst"] for row in rows) == record["worst"] <= BOUND
    for name in NAMES:
        regions = [r for r in rows if r["kernel"] == name]
        random = [r for r in regions if not r["region"].startswith("corners")]
        assert {r["region"] for r in random} == set(accuracy.REGIONS[name])
        assert sum(r["points"] for r in random) >= 10_000
        assert len(regions) > len(random)
    assert (BENCHMARKS / "results" / "accuracy.md").read_text() == accuracy.markdown(rows)


def _relu2_naive(beta, gamma, sign=1.0):
    z = beta / gamma
    phi = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    m2 = (z**2 + 1) * ndtr(sign * z) + z * phi
    m4 = (z**4 + 6 * z**2 + 3) * ndtr(sign * z) + z * (z**2 + 5) * phi
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.log(m2) - 0.5 * np.log(m4)


def _identity_wrong_erf(beta, gamma):
    z = beta / gamma
    m1 = np.sqrt(2 / np.pi) * np.exp(-0.5 * z * z) + z * erf(z)
    return np.log(m1) - 0.5 * np.log1p(z * z)


def _decayed_naive(decay, length, power=1.0):
    tail = decay ** (power * length)
    S2 = (1 - tail) * (1 + decay) / (length * (1 - decay) * (1 + tail))
    return 0.5 * np.log(S2)


def _relu2_short_fraction(beta, gamma):
    return closed_form.relu2_left(beta / gamma, 16)


def _relu2_coarse_table(beta, gamma):
    return closed_form.relu2_by_table(beta / gamma, degree=5)


PLANTED = {
    "relu2: a table of degree 5": ("relu2", "0 < z < 2", _relu2_coarse_table),
    "relu2: moments that cancel in the tail": ("relu2", "-40 < z < -8", _relu2_naive),
    "relu2: continued fraction cut short": ("relu2", "-4 < z < -1.5", _relu2_short_fraction),
    "relu2: Φ(−z)": ("relu2", "0 < z < 2", lambda beta, gamma: _relu2_naive(beta, gamma, -1.0)),
    "identity: erf(z) for erf(z/√2)": ("identity", "0 < z < 2", _identity_wrong_erf),
    "exp: γ² for γ²/2": ("exp", "1e-3 < gamma < 1", lambda beta, gamma: -(gamma**2)),
    "exp: off by 2e−13": (
        "exp",
        "1 < gamma < 1e3",
        lambda beta, gamma: closed_form.exp(beta, gamma) * (1 + 2e-13),
    ),
    "nonnegative: lost square root": (
        "nonnegative",
        "uniform, d to 1e6",
        lambda ratio, dim, query: 2 * closed_form.nonnegative(ratio, dim, query),
    ),
    "decayed: digits of 1 − λ lost": ("decayed", "1e-16 < 1 - lambda < 1e-2", _decayed_naive),
    "decayed: λ²ⁿ for λⁿ": (
        "decayed",
        "n near 1/(1 - lambda)",
        lambda decay, length: _decayed_naive(decay, length, 2.0),
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_gate_rejects(planted):
    name, region, wrong = PLANTED[planted]
    points = dict(accuracy.draws(name, 100, seed=11))[region]
    assert accuracy.judge(name, region, points)["worst"] <= BOUND
    assert accuracy.judge(name, region, points, wrong)["worst"] > BOUND


def test_scalars_and_broadcasting():
    beta, gamma = np.linspace(-30, 30, 13)[:, None], np.array([0.25, 1.0, 9.0])
    for name in ("exp", "relu2", "identity"):
        kernel = kernels.named(name)
        table = closed_form.sparsity(kernel, kernel.bind({"beta": beta, "gamma": gamma}))[1]
        assert table.shape == (13, 3)
        for index in np.ndindex(table.shape):
            point = kernel.bind({"beta": beta[index[0], 0], "gamma": gamma[index[1]]})
            single = closed_form.sparsity(kernel, point)[1]
            assert single.shape == ()
            assert single.dtype == np.float64
            np.testing.assert_allclose(single, table[index], rtol=1e-15)
    features = {"ratio": np.ones((4, 1)), "dim": [1, 2, 3], "query": "half-normal"}
    bound = kernels.nonnegative.bind(features)
    assert closed_form.sparsity(kernels.nonnegative, bound)[1].shape == (4, 3)
    bound = kernels.decayed.bind({"decay": [[0.5], [1.0]], "length": [1, 5]})
    assert closed_form.sparsity(kernels.decayed, bound)[1].shape == (2, 2)


def test_forms_themselves_never_exceed_one():
    """Not only after the clip of `log_sparsity`."""
    for name in NAMES:
        form = getattr(closed_form, name)
        for _, parameters in accuracy.draws(name, 5_000, seed=4):
            assert np.all(form(**parameters) <= 0)


def test_exact_ends():
    assert np.all(closed_form.decayed(1.0, np.array([1.0, 7.0, 1e12])) == 0)
    assert np.all(closed_form.decayed(np.array([1e-300, 0.3, 1 - 1e-16]), 1.0) == 0)
    assert np.all(closed_form.identity(-3.0, 2.0) == closed_form.identity(3.0, 2.0))
    # 1 − S keeps its digits where S → 1
    np.testing.assert_allclose(closed_form.relu2(1e6, 1.0), -2e-12, rtol=1e-11)
    np.testing.assert_allclose(closed_form.identity(1e6, 1.0), -0.5e-12, rtol=1e-11)
    np.testing.assert_allclose(closed_form.decayed(1 - 1e-9, 10.0), -99 / 24 * 1e-18, rtol=1e-6)


def test_found_by_definition_not_by_name():
    score = sympy.Symbol("u")
    for weight, form in ((sympy.exp(score), closed_form.exp), (score, closed_form.identity)):
        own = kernels.score_kernel("own", weight)
        bound = own.bind({"beta": 0.3, "gamma": 1.7})
        assert closed_form.sparsity(own, bound)[1] == form(0.3, 1.7)
    renamed = kernels.score_kernel("exp", score**3)
    with pytest.raises(NoClosedForm, match=r"s\*\*3"):
        closed_form.sparsity(renamed, renamed.bind({"beta": 0.0, "gamma": 1.0}))[1]


def test_certified_radius_and_exact_parameters():
    import flint

    ball = certify.certified_log_sparsity(kernels.exp, {"beta": 0.0, "gamma": 0.1})
    with flint.ctx.workprec(200):
        exact = -(flint.arb(0.1) ** 2) / 2  # of the float64 nearest to 0.1
        assert ball.contains(exact)
        assert not ball.contains(-flint.arb(1) / 200)
    tail = certify.certified_log_sparsity(kernels.relu2, {"beta": -40.0, "gamma": 1.0})
    assert float(tail.rad()) <= 1e-20 * abs(float(tail))
    assert abs(float(tail) + 402.6) < 1


@pytest.mark.parametrize("kernel", kernels.ALL, ids=lambda kernel: kernel.name)
def test_many_points_have_the_bits_of_few(kernel):
    rng = np.random.default_rng(3)
    drawn = {
        "beta": rng.normal(0, 6, (300, 1)),
        "gamma": rng.uniform(0.1, 6, 401),
        "ratio": rng.uniform(0.01, 10, (300, 1)),
        "dim": rng.integers(1, 99, 401),
        "decay": rng.uniform(0.5, 1, (300, 1)),
        "length": rng.integers(1, 10**6, 401),
    }
    own = {p.name: drawn[p.name] for p in kernel.parameters if p.name in drawn}
    names = {"query": "uniform"} if kernel is kernels.nonnegative else {}
    many = evaluate(kernel, **own, **names).log_S
    assert many.shape == (300, 401)
    first, second = own
    for i, j in ((0, 0), (17, 400), (299, 3), (150, 77)):
        cell = {first: float(own[first][i, 0]), second: float(own[second][j])}
        assert many[i, j] == evaluate(kernel, **cell, **names).log_S
    for i in (5, 290):
        row = evaluate(kernel, **{first: own[first][i], second: own[second]}, **names).log_S
        np.testing.assert_array_equal(many[i], row)


def test_features_that_were_measured():
    """1/√(1 + q̃ᵀΣ̃q̃/(q̃ᵀμ̃)²), against log-normal features that are drawn, and the i.i.d. form."""
    rng = np.random.default_rng(0)
    mixed = rng.uniform(size=(4, 4)) / 3
    keys = np.exp(rng.standard_normal((400_000, 4)) @ mixed)
    mean, covariance = keys.mean(0), np.cov(keys.T)
    queries = rng.uniform(size=(3, 4))
    a = queries @ keys.T
    drawn = a.mean(1) / (a**2).mean(1) ** 0.5
    found = evaluate("nonnegative", mean=mean, covariance=covariance, query=queries)
    np.testing.assert_allclose(found.S, drawn, rtol=1e-5)
    given = {"mean": mean, "covariance": covariance, "query": queries[0]}
    sampled = estimate("nonnegative", **given, rel_error=2e-3)
    assert abs(sampled.value - found.S[0]) < 4.8 * sampled.stderr
    diagonal = evaluate("nonnegative", mean=mean, covariance=np.diag(covariance), query=queries)
    assert np.abs(diagonal.S / drawn - 1).min() > 1e-3  # what is dropped is seen
    alike = evaluate("nonnegative", mean=np.ones(9), covariance=np.full(9, 4.0), query=np.ones(9))
    known = evaluate("nonnegative", ratio=2.0, dim=9, query="uniform")
    assert float(alike.S) == pytest.approx(float(known.S), rel=1e-14)
    large = {"mean": mean * 1e150, "covariance": covariance * 1e300, "query": queries * 1e200}
    np.testing.assert_allclose(evaluate("nonnegative", **large).S, found.S, rtol=1e-13)
    good = {"mean": [1.0, 2.0], "covariance": [[1.0, 0.0], [0.0, 1.0]], "query": [1.0, 0.0]}
    for name, bad in (("mean", [-1.0, 2.0]), ("mean", None), ("covariance", [1.0]),
                      ("covariance", [[1.0, 2.0], [2.0, 1.0]]), ("query", [0.0, 0.0]),
                      ("query", [1.0]), ("ratio", 1.0), ("mean", [1.0, 0.0]),
                      ("length", 10)):  # fmt: skip
        for function in (evaluate, estimate):  # neither drops what it was given
            with pytest.raises(InputError, match=name):
                function("nonnegative", **(good | {name: bad}))
