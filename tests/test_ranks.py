"""What goes by the rank of weights: exact laws against integrals and sampled rows."""

import json
import math

import numpy as np
import pytest
import xarray
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import ndtr, ndtri
from scipy.stats import binom

import sparsity
from sparsity import Alibi, InputError, Row, ScalableSoftmax, SinkLogit, quantities
from sparsity.exact_law import ranked
from sparsity.sampling import Sampling
from sparsity.sampling.row_sampling import draw_rows


def law(kernel="exp", **asked):
    return sparsity.exact(kernel, of="max_weight", **asked)


def _normal(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


@pytest.mark.parametrize("gamma", [0.01, 1.0, 20.0])
def test_two_tokens_of_softmax(gamma):
    def weighed(t):  # the difference of two scores is N(0, 2γ²)
        return 2 * _normal(t) / (1 + math.exp(-math.sqrt(2) * gamma * t))

    true, off = quad(weighed, 0, 12, epsabs=1e-14, epsrel=1e-13, points=[0.05, 0.3, 1, 3])
    found = law(length=2, gamma=gamma)
    assert off < 1e-11
    assert abs(found.value - true) <= found.error_bound * true + off
    assert found.error_bound < 1e-11


def panels(low, high, count):
    """Nodes and weights of Gauss–Legendre panels of 16 nodes."""
    x, w = np.polynomial.legendre.leggauss(16)
    half = (high - low) / count / 2
    nodes = low + half * (1 + 2 * np.arange(count)[:, None] + x)
    return nodes.ravel(), np.tile(half * w, count)


BETAS = (-3.0, 1.0, 8.9, 40.0)  # the law of weights has other panels between them
TWO = [("relu2", 2, (1,), beta) for beta in BETAS] + [("identity", 1, (1, -1), b) for b in BETAS]
TWO += [("relu", 1, (1,), 1.0), ("relu3", 3, (1,), -3.0), ("power4", 4, (1, -1), -3.0)]


@pytest.mark.parametrize(("kernel", "power", "sides", "beta"), TWO)
def test_two_tokens_by_their_ratio(kernel, power, sides, beta):
    """E max p = ∫∫ f(s₁)f(s₂) over the ratio of the smaller to the larger score."""

    def density(s):
        return sum(np.exp(-((side * s - beta) ** 2) / 2) for side in sides) / math.sqrt(2 * math.pi)

    s, of_s = panels(max(abs(beta) - 9, 0.0), abs(beta) + 9, 18)
    r, of_r = panels(0, 1, 32)
    r, of_r = r[:, None], of_r / (1 + r**power)
    both = 2 * of_r @ (density(s) * density(r * s) * s) @ of_s
    alone = ndtr(beta) * ndtr(-beta) * 2 if len(sides) == 1 else 0.0
    seen = 1 - ndtr(-beta) ** 2 if len(sides) == 1 else 1.0
    found = law(kernel, length=2, beta=beta, gamma=1.0)
    assert_allclose(found.value, (both + alone) / seen, rtol=1e-9)
    assert_allclose(found.p_nonzero, seen, rtol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kernel", "beta", "gamma", "length"),
    [("exp", 0.0, 2.0, 256), ("identity", 2.0, 0.5, 16)],
)
def test_a_finer_rule_agrees(kernel, beta, gamma, length, monkeypatch):
    found = law(kernel, length=length, beta=beta, gamma=gamma)
    monkeypatch.setattr(ranked, "_STEPS", (0.08, 0.16))
    monkeypatch.setattr(ranked, "_POINTS", (24, 16))
    fine = law(kernel, length=length, beta=beta, gamma=gamma)
    assert abs(fine.value / found.value - 1) <= found.error_bound <= 1e-10


def test_a_planted_wrong_law_of_weights_is_rejected(monkeypatch):
    """A spread that is a millionth too wide fails the gate that the right one passes."""
    right = ranked.LAWS[sparsity.kernels.exp.weight]
    test_two_tokens_of_softmax(1.0)
    wider = {sparsity.kernels.exp.weight: lambda beta, gamma, n: right(beta, gamma * (1 + 1e-6), n)}
    monkeypatch.setattr(ranked, "LAWS", ranked.LAWS | wider)
    with pytest.raises(AssertionError):
        test_two_tokens_of_softmax(1.0)


def test_known_values_and_order():
    lengths = [1, 16, 65536]
    for gamma in (0.5, 6.0):
        found = law(length=lengths, gamma=gamma)
        assert found.value[0] == 1
        assert np.all(np.diff(found.value) < 0)
        y2 = sparsity.exact("exp", length=lengths, gamma=gamma, of="participation").value
        assert np.all(found.value >= y2 * (1 - 1e-12))  # max p ≥ Σp²
        assert np.all(found.value**2 <= y2 * (1 + 1e-12))  # (E max p)² ≤ E (max p)² ≤ E Σp²
    # Narrow laws: E max p ≈ (1 + c·power·γ/β)/n, the mean c of the largest of two normals 1/√π.
    for beta, gamma in ((1000.0, 1.0), (-30.0, 1e-3)):
        found = law("identity", length=[1, 2], beta=beta, gamma=gamma)
        near = 0.5 + 0.5 * gamma / abs(beta) / math.sqrt(math.pi)
        assert_allclose(found.value, [1, near], rtol=1e-6)
    # Equal weights but for their ties.
    assert_allclose(law(length=64, gamma=1e-9).value, 1 / 64, rtol=1e-7)
    assert_allclose(law("relu2", length=4, beta=-12.0, gamma=1.0).value, 1.0, rtol=2e-12)


@pytest.mark.parametrize(
    ("row", "length", "says"),
    [
        (Row("exp", gamma=1.0, steps=(Alibi(0.1),)), 8, "rows of one law"),
        (Row("softplus", beta=0.0, gamma=1.0), 8, "no exact law of ranks but for exp"),
        (Row("exp", gamma=1e4), 8, "panels"),
        (Row("relu2", beta=-40.0, gamma=1.0), 8, "hardly ever above 0"),
    ],
    ids=str,
)
def test_what_has_no_law_here_says_so(row, length, says):
    with pytest.raises(InputError, match=says):
        law(row, length=length)


@pytest.mark.parametrize("kernel", ["identity", "abs"])
def test_fewest_keys_of_two_that_are_not_resolved_are_refused_without_a_warning(kernel):
    with pytest.raises(InputError, match="not resolved"):
        sparsity.exact(kernel, gamma=1, length=2, of="keys_for_mass:0.5")


def test_design_round_trip():
    length = 16
    found = sparsity.design("exp", length=length, max_weight=0.5, free="gamma", lengths=())
    assert_allclose(law(length=length, gamma=found.value).value, 0.5, rtol=1e-9)


# --- the k largest, and the Gini coefficient -----------------------------------------------------


def _of_three(gamma, value):
    """The mean of a function of ordered weights of three tokens of softmax, over their gaps."""
    # The gaps of three normals: 6 orders, of variance 2γ² and covariance −γ².
    gap, share = panels(0, 14, 14)
    x, y = gap[:, None], gap
    a = np.stack(np.broadcast_arrays(1.0, np.exp(-gamma * x), np.exp(-gamma * (x + y))))
    weighed = value(a / a.sum(axis=0)) * np.exp(-(x * x + x * y + y * y) / 3)
    return 6 / (2 * math.pi * math.sqrt(3)) * (share @ weighed @ share)


@pytest.mark.parametrize("gamma", [0.5, 6.0])
@pytest.mark.parametrize(
    ("of", "value"),
    [
        ("max_weight", lambda p: p[0]),
        ("top_k_mass:2", lambda p: p[0] + p[1]),
        ("gini", lambda p: 2 * (p[0] - p[2]) / 3),
    ],
)
def test_three_tokens_of_softmax(gamma, of, value):
    found = sparsity.exact("exp", length=3, gamma=gamma, of=of)
    assert_allclose(found.value, _of_three(gamma, value), rtol=1e-9)
    assert found.error_bound < 1e-11


@pytest.mark.parametrize(("kernel", "beta"), [("exp", 0.0), ("relu2", -1.0)])
def test_the_gini_coefficient_is_a_sum_of_top_masses(kernel, beta):
    """Gini = (2/n) Σ_k T_k − (n + 1)/n, with the share T_k of the k largest: a second route."""
    length = 4
    given = {"length": length, "beta": beta, "gamma": 1.0}
    tops = [float(sparsity.exact(kernel, of=f"top_k_mass:{k}", **given).value)
            for k in range(1, length + 1)]  # fmt: skip
    gini = float(sparsity.exact(kernel, of="gini", **given).value)
    assert_allclose(2 / length * math.fsum(tops) - (length + 1) / length, gini, atol=3e-11)
    assert tops == sorted(tops)
    assert tops[0] == float(sparsity.exact(kernel, of="max_weight", **given).value)
    assert tops[-1] == 1


@pytest.mark.parametrize(
    ("of", "places"), [("top_k_mass:8", [("exp", 0.0, 2.0, 256)]), ("gini", [("exp", 0.0, 8.0, 2)])]
)
def test_a_finer_rule_agrees_on_all_ranks(of, places, monkeypatch):
    asked = [{"kernel": k, "length": n, "beta": b, "gamma": g, "of": of} for k, b, g, n in places]
    found = [sparsity.exact(**each) for each in asked]
    monkeypatch.setattr(ranked, "_STEPS", (0.08, 0.16))
    monkeypatch.setattr(ranked, "_POINTS", (24, 16))
    for each, coarse in zip(asked, found, strict=True):
        fine = sparsity.exact(**each)
        assert abs(fine.value / coarse.value - 1) <= coarse.error_bound <= 1e-10


SAMPLED = ("max_weight", "top_k_mass:4", "gini", "power_sum:0.5", "power_sum:3")


def drawn_rows(row, length, to, seed):
    """Rows of which the largest weight is known to `to`, in float32; a length compiles once."""
    return draw_rows(
        row, length, Sampling(to, seed=seed, dtype=np.float32), SAMPLED[0], also=SAMPLED
    )


@pytest.mark.thorough
def test_a_planted_error_of_the_count_is_rejected():
    """n for n − 1 in the Gini coefficient, k + 1 for k: the sampled rows see it."""
    row = Row("exp", gamma=2.0)
    rows = drawn_rows(row, 16, 2e-3, 5)
    gini, top, more = (
        float(sparsity.exact(row, length=16, of=of).log_value)
        for of in ("gini", "top_k_mass:4", "top_k_mass:5")
    )
    for of, true, planted, seen in (
        ("gini", gini, gini + math.log(16 / 15), 0.05),
        ("top_k_mass:4", top, more, 0.01),
    ):
        drawn = rows.estimate(of)
        assert abs(drawn.log_value - true) < 4.5 * drawn.rel_stderr
        assert abs(drawn.log_value - planted) > 4.5 * drawn.rel_stderr
        assert abs(planted - true) > seen


@pytest.mark.parametrize("gamma", [0.5, 4.0])
def test_long_rows_reach_the_limits_of_softmax(gamma):
    """The Gini coefficient 2Φ(γ/√2) − 1; of the top fraction q of the keys Φ(γ + Φ⁻¹(q))."""
    n = 2**20
    gini = sparsity.exact("exp", length=n, gamma=gamma, of="gini").value
    tolerance = 20 * math.exp(gamma * gamma) / n
    assert abs(gini - (2 * ndtr(gamma / math.sqrt(2)) - 1)) < tolerance
    top = sparsity.exact("exp", length=n, gamma=gamma, of="top_k_mass:256").value
    assert abs(top - ndtr(gamma + ndtri(256 / n))) < max(tolerance, 0.01)


@pytest.mark.parametrize(("k", "n"), [(65, 300), (256, 300), (4096, 131072), (2999, 3000)])
def test_so_many_of_a_binomial_number_count(k, n):
    """E min(k, N) as a sum, about k and far from it; k of 256 once lost its terms at n = 300."""
    counts = np.arange(n + 1)
    for mean in (0.01, k / 2, k - math.sqrt(k), k, min(k + math.sqrt(k), n - 0.1), n - 1e-3):
        log_rest = np.log1p(np.array([-mean / n]))
        true = np.minimum(counts, k) @ binom.pmf(counts, n, mean / n)
        assert_allclose(quantities.largest.largest(k).mean(n, log_rest), true, rtol=3e-12)


MANY = [("exp", 0.0, 1.0, 2048, 4097), ("exp", 0.0, 2.0, 512, 4097), ("relu2", 0.5, 1.0, 600, 4096),
        ("identity", 1.0, 1.0, 4000, 4097)]  # fmt: skip
WEIGHTS = {"exp": np.exp, "relu2": lambda s: np.maximum(s, 0) ** 2, "identity": np.abs}


@pytest.mark.parametrize(("kernel", "beta", "gamma", "k", "n"), MANY)
def test_the_mass_of_thousands_of_keys_is_that_of_drawn_rows(kernel, beta, gamma, k, n):
    scores = beta + gamma * np.random.default_rng(8).standard_normal((300, n))
    held = np.sort(WEIGHTS[kernel](scores))[:, ::-1].cumsum(1)
    mass = held[:, k - 1] / held[:, -1]
    row = Row(kernel, gamma=gamma, **{} if kernel == "exp" else {"beta": beta})
    names = (f"top_k_mass:{k}", f"top_k_mass:{k + k // 50 + 20}")
    found, more = (sparsity.exact(row, length=n, of=name) for name in names)
    bar = 4.5 * mass.std(ddof=1) / math.sqrt(len(mass))
    assert abs(found.value - mass.mean()) < bar < more.value - mass.mean()
    assert found.error_bound < 2e-12


def test_the_mass_of_thousands_in_the_longest_rows():
    """In a row of 10⁷ the top fraction q hold Φ(γ + Φ⁻¹(q)), and all but one all but the least."""
    n, ks = 10**7, (4096, 10**6, 9 * 10**6)
    for k in ks:
        found = sparsity.exact("exp", length=n, gamma=1.0, of=f"top_k_mass:{k}")
        assert abs(found.value - ndtr(1 + ndtri(k / n))) < 1e-6
        assert found.error_bound < 2e-12


# --- keys for a mass -----------------------------------------------------------------------------


def keys(kernel, beta, gamma, n, share):
    row = Row(kernel, gamma=gamma, **{} if kernel == "exp" else {"beta": beta})
    return sparsity.exact(row, length=n, of=f"keys_for_mass:{share:g}")


@pytest.mark.parametrize(("share", "gamma"), [(0.6, 1.0), (0.9, 0.5), (0.95, 3.0)])
def test_one_key_of_two_holds_the_share_where_scores_are_far_enough_apart(share, gamma):
    apart = math.log(share / (1 - share)) / (math.sqrt(2) * gamma)
    found = keys("exp", 0.0, gamma, 2, share)
    assert abs(found.value - (2 - 2 * ndtr(-apart))) < found.error_bound * found.value < 1e-3


FEWEST = [("exp", 0.0, 3.0, 2000, 0.9), ("exp", 0.0, 0.5, 500, 0.5), ("relu2", 0.5, 1.0, 1000, 0.9),
          ("identity", 1.0, 1.0, 1000, 0.8), ("exp", 0.0, 0.1, 1000, 0.9)]  # fmt: skip


@pytest.mark.parametrize(("kernel", "beta", "gamma", "n", "share"), FEWEST)
def test_the_fewest_keys_are_those_of_drawn_rows(kernel, beta, gamma, n, share):
    scores = beta + gamma * np.random.default_rng(4).standard_normal((1000, n))
    held = np.sort(WEIGHTS[kernel](scores))[:, ::-1].cumsum(1)
    drawn = 1 + (held < share * held[:, -1:]).sum(1)
    found, planted = (keys(kernel, beta, gamma, n, p) for p in (share, share + (1 - share) / 4))
    bar = 4.5 * drawn.std(ddof=1) / math.sqrt(len(drawn))
    assert abs(found.value - drawn.mean()) < bar < planted.value - drawn.mean()
    assert found.error_bound < 1e-4


def test_the_fewest_keys_of_the_longest_rows_and_of_equal_weights():
    """Of all keys Φ(Φ⁻¹(p) − γ) hold the share p. Equal weights leave no law to integrate."""
    found = keys("exp", 0.0, 1.0, 10**7, 0.9)
    assert_allclose(found.value, 1e7 * ndtr(ndtri(0.9) - 1), rtol=2e-5)
    with pytest.raises(InputError, match="not resolved at length 1000"):
        keys("exp", 0.0, 1e-4, 1000, 0.9)  # every row has 900, the integral half a key more


# --- families ------------------------------------------------------------------------------------


# ∫ φ(z) Φ(z + √32·SNR)³¹ dz at SNR = 4/√10 and 1/2, by mpmath
RECALLS = [0.9999936902234968, 0.757292470642218]
MARKS = {  # what a row must have, as typed and as steps
    None: ((), ()),
    "sink": (("--step", "sink-logit:4"), (SinkLogit(4.0),)),
    "needle": (("--step", "needle:5"), (sparsity.Needle(5.0),)),
}


def assert_design_finds_gamma(quantity, held):
    """The scale of SSMax at which γ is 1.5 is found from the value there."""
    steps = (ScalableSoftmax(), *MARKS[quantity.needs][1])  # γ = γ₀·s·ln n
    asked = {"length": 16, "free": "scale", "lengths": (), quantity.name: held}
    made = sparsity.design(Row("exp", gamma=0.25, steps=steps), **asked)
    assert made.check == pytest.approx(held, rel=1e-9)
    assert made.value * 0.25 * math.log(16) == pytest.approx(1.5, rel=1e-7)


# One of weights alone, one that needs a sink, one that needs a needle.
KINDS = ("top_k_mass", "sink_mass_above", "needle_recall")
VALUES = {  # by hand; of scores below a level and of one token's weight: tests of their own
    "top_k_mass": [1, 0.8], "keys_for_mass": [3, 5], "power_sum": [(1 + 27 + 64) / 512, 1 / 25],
    "sink_mass_above": [1, 0], "needle_odds_above": [0, 0], "needle_snr_above": [1, 0],
    "needle_recall": RECALLS, "overlap": [(3 * 1 + 4 * 3) / 64, 1 / 5], "top_k_overlap": [2 / 3, 1],
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(
    "family",
    [
        pytest.param(x, marks=[pytest.mark.slow] * (x.name not in KINDS))
        for x in quantities.FAMILIES
        if x.name in VALUES
    ],
    ids=lambda family: family.name,
)
def test_contract_of_every_family(family, command, tmp_path):
    name = f"{family.name}:{family.example}"
    quantity = quantities.named(name)
    assert quantity.name == name
    assert quantities.named(f" {name} ".strip().replace(",", ", ")) is quantity
    weights = np.array([[0.0, 1.0, 3.0, 4.0, 0.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
    with np.errstate(divide="ignore"):
        logs = np.log(weights), np.log(np.roll(weights, 1, -1))
    sums = quantities.RowSums(
        5, weights.sum(-1), (weights**2).sum(-1), weights[:, 2:4].sum(-1), np.zeros(2), weights,
        needle=weights[:, 3], others_l1=weights[:, :3].sum(-1) + weights[:, 4],
        others_l2=(weights[:, :3] ** 2).sum(-1) + weights[:, 4] ** 2,
        pair=logs,
    )  # fmt: skip
    assert_allclose(
        quantity.of(sums),
        VALUES[family.name],
        rtol=3e-7 if family.name == "needle_recall" else 1e-15,
        atol=1e-15,
    )
    sinks = MARKS[quantity.needs][0]
    line = ["exp", "--gamma", "1.5", "--length", "16", "--of", name, *sinks]
    code, out, err = command("estimate", *line, "--rel-error", "2e-2", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["quantity"] == name
    code, out, err = command("exact", *line, "--json")
    if not quantity.has_law:
        assert code == 2
        assert "no exact law" in err
        return
    held = json.loads(out)["value"]
    if family not in (quantities.needle_recall, quantities.top_k_overlap):
        assert_design_finds_gamma(quantity, held)
    code, _, err = command("design", *line[:1], *line[3:], "--value", 17)  # more than all keys
    assert code == 2
    assert err.startswith(f"sparsity: {name} = 17")
    file = tmp_path / "swept.nc"
    code, _, err = command("sweep", *line, "--out", file)
    assert code == 0, err
    with xarray.open_dataset(file) as data:
        assert float(data[name].squeeze()) == pytest.approx(held, rel=1e-11)


@pytest.mark.parametrize(
    ("of", "says"),
    [
        ("top_k_mass", "top_k_mass:4"),
        ("top_k_mass:2.5", "whole number"),
        ("power_sum:0.1", "from 0.5 to 8"),
        ("gini:2", "did you mean gini"),
    ],
)
def test_a_number_outside_its_family_is_refused_in_one_line(of, says):
    with pytest.raises(InputError, match=says) as refused:
        quantities.named(of)
    assert refused.value.argument == "of"


@pytest.mark.parametrize(("kernel", "beta"), [("relu2", -3.0), ("identity", 40.0), ("power4", 1.0)])
def test_of_two_tokens_the_gini_coefficient_is_the_largest_less_a_half(kernel, beta):
    """|p₁ − p₂|/2 = max p − ½, also where the weights are far from 0."""
    given = {"length": 2, "beta": beta, "gamma": 1.0}
    gini = sparsity.exact(kernel, of="gini", **given)
    found = law(kernel, **given)
    assert_allclose(gini.value, found.value - 0.5, atol=3e-12)


@pytest.mark.thorough
def test_what_a_window_leaves_is_the_law_of_the_shorter_row():
    """Tokens out of sight weigh 0: the Gini coefficient counts them, as `metric.gini` does."""
    shorter = sparsity.exact("relu2", beta=-1.0, gamma=1.0, length=8, of="gini")
    rng = np.random.default_rng(3)
    a = np.pad(np.maximum(rng.normal(-1.0, 1.0, (100_000, 8)), 0) ** 2, ((0, 0), (0, 8)))
    p = np.sort(a[a.any(1)], axis=1)
    p /= p.sum(1, keepdims=True)
    rows = p @ (2 * np.arange(1, 17) - 17) / 16
    for step in (sparsity.Window(8), sparsity.Chunk(8), sparsity.Window(7, 1)):
        row = Row("relu2", beta=-1.0, gamma=1.0, steps=(step,))
        law = sparsity.exact(row, length=16, of="gini")
        assert abs(law.value - rows.mean()) < 4.5 * rows.std() / math.sqrt(len(rows))
        assert law.value != shorter.value
        assert sparsity.exact(row, length=[8, 16], of="gini").value[1] == law.value
