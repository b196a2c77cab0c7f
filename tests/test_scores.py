"""Laws of scores beyond the Gaussian: definitions, limits, exact laws, draws, and who refuses what.

Every check has a law planted that it must reject. Rows here are drawn by NumPy's own generators,
and integrals are SciPy's and mpmath's: they share with the library what the laws are, and no more.
"""

import functools
import itertools
import json
import math

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import comb

from sparsity import (
    Alibi,
    Empirical,
    InputError,
    Mixture,
    QKNorm,
    Row,
    StudentT,
    Uniform,
    derive,
    estimate,
    evaluate,
    exact,
    sampling,
)
from sparsity.cli.request import read_request
from sparsity.kernels import identity
from sparsity.limit.score_moments import log_moment
from sparsity.rows import score_laws

ROOT3 = math.sqrt(3)
KINDS = ((0.9, 0.0, 1.0), (0.1, 3.0, 0.5))
SKEWED = np.random.default_rng(20231212).gamma(2.0, size=300)
LAWS = {
    "uniform": Uniform(),
    "t": StudentT(12),
    "mixture": Mixture(KINDS),
    "empirical": Empirical(SKEWED),
}
WEIGHTS = {"exp": np.exp, "relu2": lambda s: np.maximum(s, 0.0) ** 2, "identity": np.abs}
BETA, GAMMA = 0.5, 0.8


def rows(law, rng, size):
    """x by NumPy, from what a law says of itself."""
    if isinstance(law, Uniform):
        return rng.uniform(-ROOT3, ROOT3, size)
    if isinstance(law, StudentT):
        return rng.standard_t(law.degrees, size) * math.sqrt((law.degrees - 2) / law.degrees)
    if isinstance(law, Empirical):
        return rng.choice((SKEWED - SKEWED.mean()) / SKEWED.std(), size)
    share, mean, deviation = np.array(KINDS).T
    kind = rng.choice(len(KINDS), size=size, p=share)
    raw = mean[kind] + deviation[kind] * rng.standard_normal(size)
    centre = share @ mean
    return (raw - centre) / math.sqrt(share @ (deviation**2 + (mean - centre) ** 2))


def density(law):
    """The density of x by SciPy, and the points that split its line."""
    if isinstance(law, Uniform):
        return lambda x: 0.5 / ROOT3, (-ROOT3, ROOT3)
    if isinstance(law, StudentT):
        root = math.sqrt(law.degrees / (law.degrees - 2))
        return lambda x: root * stats.t.pdf(root * x, law.degrees), (-np.inf, 0.0, np.inf)
    share, mean, deviation = np.array(KINDS).T
    centre = share @ mean
    spread = math.sqrt(share @ (deviation**2 + (mean - centre) ** 2))

    def mixed(x):
        return spread * (share @ stats.norm.pdf(centre + spread * x, mean, deviation))

    return mixed, (-12.0, -1.0, 1.0, 3.0, 12.0)


def direct_moment(name, law, p, beta, gamma):
    """E|f(β + γx)|^p by SciPy, or the plain mean over a sample."""
    f = WEIGHTS[name]
    if isinstance(law, Empirical):
        x = (SKEWED - SKEWED.mean()) / SKEWED.std()
        return np.mean(f(beta + gamma * x) ** p)
    pdf, points = density(law)
    points = sorted({*points, -beta / gamma} if name != "exp" else points)
    points = [x for x in points if points[0] <= x <= points[-1]]
    return sum(
        integrate.quad(
            lambda x: f(beta + gamma * x) ** p * pdf(x), low, high, epsabs=0, epsrel=1e-11
        )[0]
        for low, high in itertools.pairwise(points)
    )


def exists(name, law):
    """Whether E a² does."""
    return not (isinstance(law, StudentT) and name == "exp")


# What a law is.


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_a_law_has_mean_0_and_variance_1(law):
    assert log_moment(identity, 2, 0.0, 1.0, law)[0] == pytest.approx(0.0, abs=1e-13)
    # E(x + b)² = 1 + b² on both sides: the mean is 0
    for bias in (-2.0, 2.0):
        value, bound = log_moment(identity, 2, bias, 1.0, law)
        assert value == pytest.approx(math.log(5.0), abs=1e-13)
        assert bound < 1e-12


def drawn(law, size, seed=3):
    rng = np.random.default_rng(seed)
    return law.drawn(rng.random((size, law.uniforms)), rng.standard_normal((size, law.normals)))


WRONG = {
    "uniform": lambda x: x / ROOT3,  # on [−1, 1]
    "t": lambda x: x * math.sqrt(12 / 10),  # of variance ν/(ν − 2)
    "mixture": lambda x: x + 0.3,  # the mean left in
    "empirical": lambda x: -x,
}


@pytest.mark.parametrize("name", LAWS)
def test_what_is_drawn_has_that_law(name):
    own, size = drawn(LAWS[name], 20_000), 20_000
    other = rows(LAWS[name], np.random.default_rng(8), size)
    assert stats.ks_2samp(own, other).pvalue > 1e-4
    assert stats.ks_2samp(WRONG[name](own), other).pvalue < 1e-4


def test_tails_of_drawn_student_scores_do_not_end():
    u = np.array([[0.0, 0.0, 0.0], [0.0, 0.5, 0.0], [0.5, 0.0, 0.0]], dtype=np.float32)
    x = StudentT(4).drawn(u, np.zeros((3, 1), dtype=np.float32))
    assert x.dtype == np.float32
    assert np.all(np.isfinite(x))
    assert x[0] > 4e3 > x[1] > 70  # u = 2^-46, and 2^-23, the end of one word
    # u = ½: x² = (ν − 2)(2^(2/ν) − 1)
    assert x[2] == pytest.approx(math.sqrt(2 * (math.sqrt(2) - 1)), rel=1e-5)


# Limits, against integrals that know the density only.


def test_limits_against_direct_integrals():
    for law in LAWS.values():
        for name in WEIGHTS:
            row = Row(name, beta=BETA, gamma=GAMMA, scores=law)
            if not exists(name, law):
                continue
            m1, m2 = (direct_moment(name, law, p, BETA, GAMMA) for p in (1, 2))
            found = evaluate(row)
            wanted = math.log(m1) - math.log(m2) / 2
            assert found.log_S == pytest.approx(wanted, abs=1e-10), row
            assert found.error_bound < 1e-12
            wrong = evaluate(name, beta=BETA, gamma=GAMMA)  # the Gaussian of the same β and γ
            assert abs(wrong.log_S - wanted) > 1e-3


def two_valued(n, q, weights):
    """n_eff and participation of rows of two weights, by the binomial sum over how many are which.

    Args:
        n: tokens.
        q: probability of the first weight.
        weights: the two.
    """
    k = np.arange(n + 1)
    p = comb(n, k) * q**k * (1 - q) ** (n - k)
    l1, l2 = (k * weights[0] ** i + (n - k) * weights[1] ** i for i in (1, 2))
    return p @ (l1**2 / l2), p @ (l2 / l1**2)


def test_scores_of_two_values_against_the_binomial_sum():
    q = 0.3
    spread = math.sqrt(q * (1 - q))
    x = np.array([(1 - q) / spread, -q / spread])
    for law in (Mixture(((0.3, 7, 0), (0.7, 5, 0))), Empirical([2.0] * 3 + [1.0] * 7)):
        for n in (1, 2, 16, 200):
            row = Row("exp", gamma=1.5, scores=law)
            wanted = two_valued(n, q, np.exp(1.5 * x))
            for of, value in zip(("n_eff", "participation"), wanted, strict=True):
                found = exact(row, length=n, of=of)
                assert found.value == pytest.approx(value, rel=1e-11)
                assert abs(found.value / value - 1) <= found.error_bound + 1e-14
                if n > 1:
                    wrong = two_valued(n, q, np.exp(1.51 * x))[of == "participation"]
                    assert abs(wrong / value - 1) > 1e-4


def test_a_large_sample_of_a_gaussian_is_the_gaussian():
    """Within what the sample leaves open: the scatter between ten samples."""
    for name in WEIGHTS:
        rng = np.random.default_rng(5)
        laws = [Empirical(rng.standard_normal(4000)) for _ in range(10)]
        found = [exact(Row(name, beta=1.0, gamma=1.0, scores=x), length=64).log_value for x in laws]
        stderr = np.std(found, ddof=1) / math.sqrt(len(found))
        wanted = exact(name, length=64, beta=1.0, gamma=1.0).log_value
        t = (np.mean(found) - wanted) / stderr
        assert abs(t) < stats.t.ppf(1 - 1e-4 / 2, 9)
        assert stderr < 5e-3
        skewed = exact(Row(name, beta=1.0, gamma=1.0, scores=Empirical(SKEWED)), length=64)
        assert abs(skewed.log_value - wanted) / stderr > 10


# Exact laws of rows.


def sampled(row, law, n, count, rng, block=2**22):
    """Quantities of rows by NumPy: their means and standard errors, over rows that are not zero."""
    values = {name: [] for name in ("n_eff", "S", "participation", "entropy")}
    beta, gamma, w = row.positions(n)
    for start in range(0, count, max(1, block // n)):
        size = min(max(1, block // n), count - start)
        s = beta + gamma * rows(law, rng, (size, n))
        s -= s.max(axis=1, keepdims=True) if row.kernel.name == "exp" else 0.0
        a = w * WEIGHTS[row.kernel.name](s)
        a = a[a.any(axis=1)]
        l1, l2 = a.sum(axis=1), (a * a).sum(axis=1)
        p = a / l1[:, None]
        values["n_eff"].append(l1**2 / l2)
        values["S"].append(l1 / np.sqrt(n * l2))
        values["participation"].append(l2 / l1**2)
        values["entropy"].append(-(p * np.log(np.maximum(p, 1e-300))).sum(axis=1))
    whole = {name: np.concatenate(parts) for name, parts in values.items()}
    return {name: (x.mean(), x.std(ddof=1) / math.sqrt(len(x))) for name, x in whole.items()}


law_of = functools.cache(lambda row, n, of: exact(row, length=n, of=of).value)


def against_rows(n, steps=(), laws=()):
    """Largest |z| of the exact laws of every law and kernel, and what Gaussian ones reach."""
    worst, cells, gaussian = 0.0, 0, []
    for law in laws or LAWS.values():
        seen = 0.0
        for i, name in enumerate(WEIGHTS):
            row = Row(name, beta=BETA, gamma=GAMMA, scores=law, steps=steps)
            drawn = sampled(row, law, n, 20_000, np.random.default_rng([n, i]))
            for of, (mean, stderr) in drawn.items():
                own, other = (
                    law_of(each, n, of)  # the Gaussian one is the same for every law
                    for each in (row, Row(name, beta=BETA, gamma=GAMMA, steps=steps))
                )
                worst = max(worst, abs(mean - own) / stderr)
                seen = max(seen, abs(mean - other) / stderr)
                cells += 1
        gaussian.append(seen)
    return worst, cells, min(gaussian)


@pytest.mark.thorough
def test_exact_laws_against_rows():
    worst, cells, planted = against_rows(16)
    assert cells == 48
    assert worst < stats.norm.ppf(1 - 1e-4 / 2 / cells)
    assert planted > 6  # the Gaussian law is seen to be wrong for each


@pytest.mark.thorough
def test_tokens_out_of_reach_of_bounded_scores():
    """ALiBi takes relu² below zero at every score: five tokens of twelve are left."""
    for law in (Uniform(), QKNorm(3), Mixture(((0.5, -1, 0), (0.5, 1, 0)))):
        end = -law.ends[0]
        row = Row("relu2", beta=1.0, gamma=0.5, scores=law, steps=(Alibi((1 + end / 2) / 4.5),))
        for of in ("participation", "entropy"):
            found = [exact(row, length=n, of=of) for n in (5, 6, 12)]
            assert found[0].value == pytest.approx(float(found[2].value), rel=1e-12)
            assert found[1].value == pytest.approx(float(found[2].value), rel=1e-12)
            four = exact(row, length=4, of=of).value
            assert abs(four / found[2].value - 1) > 1e-5
        with pytest.raises(InputError, match="no token in sight"):
            exact(row.replace(beta=-3.0), length=4)


# The instruments against each other.


def test_a_random_direction_is_that_of_the_normals():
    z = np.array([[3.0, 4.0, 0.0], [0.0, 1.0, 2.0], [-1.0, 2.0, 2.0]])
    np.testing.assert_allclose(QKNorm(3).drawn(None, z), np.sqrt(3) * np.array([0.6, 0, -1 / 3]))


def test_estimates_say_where_heavy_tails_end_them():
    assert (
        sampling.doubt_of_heavy_tails(Row("identity", beta=2.0, gamma=0.5, scores=StudentT(9)))
        is None
    )
    wild = estimate(Row("identity", beta=2.0, gamma=0.5, scores=StudentT(7)), rel_error=1e-2)
    assert "E|a|^8 is infinite under t:7 scores" in str(wild.warning)
    assert not wild.trusted


# Who refuses what.


REFUSED = (
    (lambda: StudentT(2.0), "degrees = 2.0: must be > 2"),
    (lambda: Mixture(((1, 2),)), "kinds"),
    (lambda: Mixture(((1, 4, 0),)), "give them a spread"),
    (lambda: Empirical([1.0]), "at least two that differ"),
    (lambda: Empirical([1.0, math.nan]), "give finite numbers"),
    (lambda: Empirical(np.arange(2.0**18 + 1)), "at most 262144"),
    (lambda: Row("exp", gamma=1, scores="uniform"), "give a law of scores"),
    (lambda: Row("exp", gamma=1, scores=Uniform(), steps=(QKNorm(4),)), "scores of one law"),
    (lambda: Row("decayed", decay=0.5, scores=Uniform()), "has no scores"),
    (lambda: evaluate(Row("exp", gamma=1, scores=StudentT(9))), "is infinite: it must grow slower"),
    (lambda: exact(Row("exp", gamma=1, scores=StudentT(7)), length=4), "use estimate"),
    (lambda: exact(Row("sparsemax", gamma=1, scores=Uniform()), length=4), "Gaussian scores; use"),
    (lambda: estimate(Row("exp", gamma=1, scores=Uniform()), dim=4), "whole keys give Gaussian"),
    (lambda: derive(Row("exp", gamma=1, scores=Uniform())), "use evaluate for a row"),  # type: ignore[arg-type]
)


@pytest.mark.parametrize(("make", "match"), REFUSED)
def test_refusals(make, match):
    with pytest.raises(InputError, match=match):
        make()


def test_heavy_tails_near_the_end_of_a_moment():
    """E s² ∝ 1/(ν − 2) is finite as long as ν > 2, and known to all digits soon after."""
    for nu in (2.2, 2.5, 4.0):
        value, bound = log_moment(identity, 2, 0.0, 1.0, StudentT(nu))
        assert abs(value) <= bound
    assert bound < 1e-12
    with pytest.raises(InputError, match="infinite, or nearly"):
        log_moment(identity, 2, 0.0, 1.0, StudentT(2.01))


# On the command line, and in a file.


def test_laws_as_typed(tmp_path):
    for law in LAWS.values():
        assert hash(law) == hash(type(law)(*law.example)) or law != type(law)(*law.example)
        if not isinstance(law, Empirical):
            assert score_laws.parse(law.typed) == law
    np.save(tmp_path / "head.npy", SKEWED.reshape(3, 100))
    (tmp_path / "head.txt").write_text("\n".join(map(repr, SKEWED.tolist())), "utf-8")
    for name in ("head.npy", "head.txt"):
        assert score_laws.parse(str(tmp_path / name)) == LAWS["empirical"]
    own = Row("exp", scores=LAWS["empirical"])
    assert own.params == pytest.approx({"beta": SKEWED.mean(), "gamma": SKEWED.std()})
    assert Row("exp", gamma=2, scores=LAWS["empirical"]).gamma == 2


def test_scores_on_the_command_line(command, tmp_path):
    code, out, _ = command("eval", "exp", "--gamma", 2, "--scores", "uniform", "--json")
    assert code == 0
    end = 2 * ROOT3  # E e^(ps) = sinh(pc)/(pc)
    log_m1, log_m2 = (math.log(math.sinh(p * end) / (p * end)) for p in (1, 2))
    found = json.loads(out)
    assert found["log_S"] == pytest.approx(log_m1 - log_m2 / 2, abs=1e-13)
    assert found["steps"] == ["uniform"]
    np.save(tmp_path / "head.npy", SKEWED)
    code, out, _ = command(
        "exact", "exp", "--length", 16, "--scores", tmp_path / "head.npy", "--json"
    )
    assert code == 0
    wanted = exact(Row("exp", scores=Empirical(SKEWED)), length=16).value
    assert json.loads(out)["value"] == pytest.approx(float(wanted), rel=1e-14)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("gauss", "give uniform, t:DEGREES"),
        ("t:1", "degrees: must be > 2"),
        ("missing.npy", "cannot be read"),
    ],
)
def test_scores_that_are_none(command, typed, says):
    code, out, err = command("eval", "exp", "--gamma", 2, "--scores", typed)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"scores = {typed}" in err
    assert says in err


@pytest.mark.parametrize("kernel", ["exp", "sigmoid"])
def test_a_mixture_keeps_its_own_scale_unless_a_spread_is_given(kernel):
    """Keys of two kinds, one of them of a fixed score: rows drawn without the package."""
    rng, n = np.random.default_rng(56), 64
    wide = rng.random((40_000, n)) < 1 / 16
    s = np.where(wide, 1 + 3 * rng.standard_normal(wide.shape), -1)
    a = np.exp(s) if kernel == "exp" else 1 / (1 + np.exp(-s))
    p = a / a.sum(1, keepdims=True)
    drawn_entropy = -(p * np.log(p)).sum(1)
    kinds = Mixture(((256, 1, 3), (3840, -1, 0)))
    law = exact(Row(kernel, scores=kinds), length=n, of="entropy")
    error = drawn_entropy.std() / len(s) ** 0.5
    assert abs(drawn_entropy.mean() - float(law)) < 4.8 * error
    typed = read_request(kernel, {"length": n}, ["mixture:256,1,3;3840,-1,0"], "entropy")
    assert typed.row == Row(kernel, scores=kinds)
    scaled = Row(kernel, beta=0, gamma=1, scores=kinds)
    assert abs(drawn_entropy.mean() - float(exact(scaled, length=n, of="entropy"))) > 10 * error
    assert Row("exp", gamma=2, scores=kinds).params == {"beta": 0, "gamma": 2}
