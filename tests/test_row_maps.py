"""Weights of whole rows: their definitions, and exact laws against what does not share them."""

import functools
import math
from dataclasses import replace

import jax
import numpy as np
import pytest
import sympy
from numpy.testing import assert_allclose
from scipy.integrate import dblquad, quad
from scipy.optimize import brentq
from scipy.special import entr, ndtr

import sparsity
from sparsity import Row, kernels, panel, quantities
from sparsity.crosscheck.cells import Question
from sparsity.crosscheck.verify import check, judge
from sparsity.errors import InputError
from sparsity.exact_law import entmax, maps, rules, sparsemax, stick_breaking, threshold_maps, top_k
from sparsity.kernels.entmax import Weights
from sparsity.limit import quadrature
from sparsity.sampling import Sampling
from sparsity.sampling.row_sampling import draw_rows

MAPS = tuple(kernel for kernel in kernels.MAPS if kernel.drawn is None)
SIGMOID = sparsity.score_kernel("sigmoid", 1 / (1 + sympy.exp(-sympy.Symbol("s"))))


def law(name, of="participation", **asked):
    return sparsity.exact(name, of=of, **asked)


def rows(n, count=200, seed=3):
    """Scores of several spreads, with ties, in rows of n."""
    rng = np.random.default_rng([seed, n])
    s = rng.normal(size=(count, n)) * rng.choice([0.01, 0.3, 2.0, 20.0], size=(count, 1))
    s[::7] = np.round(s[::7])
    return s


def bisected(excess, s):
    """The threshold at which a falling function of it vanishes, row by row."""
    low, high = s.max(-1, keepdims=True) - 3, s.max(-1, keepdims=True)
    for _ in range(80):
        middle = (low + high) / 2
        above = excess(middle) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return (low + high) / 2


# The contract of every map.


@pytest.mark.parametrize(
    "compiled", [(1, 9), pytest.param((2, 64), marks=pytest.mark.slow)], ids=str
)
@pytest.mark.parametrize("kernel", MAPS, ids=lambda kernel: kernel.name)
def test_a_definition_holds_on_concrete_rows(kernel, compiled):
    ran, every = 0, {n: rows(n) for n in (1, 2, 9, 64)}
    weigh = jax.jit(lambda some: [kernel.weights(s) for s in some])
    on_device = dict(zip(compiled, weigh([every[n] for n in compiled]), strict=True))
    for n, s in every.items():
        p = kernel.weights(s)
        left = 0 if kernel.residual_mass is None else kernel.residual_mass(s)
        assert p.shape == s.shape
        assert (p >= 0).all()
        assert_allclose(p.sum(-1) + left, 1, rtol=1e-12)
        if n in on_device:
            assert_allclose(on_device[n], p, rtol=1e-12, atol=1e-13)
        assert_allclose(kernel.weights(s.astype(np.float32)), p, rtol=2e-3, atol=2e-5)
        free = kernel.parameters[0].default is not None  # β drops out
        assert np.allclose(kernel.weights(s + 3.0), p, atol=1e-12) == free or n == 1
        ran += 1
    assert ran == 4


@pytest.mark.parametrize("kernel", MAPS, ids=lambda kernel: kernel.name)
def test_a_map_is_first_class(kernel, command):
    assert kernels.named(kernel.name) == kernel
    row = Row(kernel.name, beta=0.0, gamma=1.5)
    assert row.kernel == kernel
    assert eval(repr(row), {"Row": Row}) == row
    assert panel.opened(row).shown == (kernel.name,)
    code, out, err = command("list")
    assert (code, err) == (0, "")
    assert any(line.startswith(f"{kernel.name} ") for line in out.splitlines())
    for ask in (
        lambda: sparsity.derive(kernel.name),
        lambda: sparsity.evaluate(row),
        lambda: sparsity.evaluate(kernel.name, beta=0.0, gamma=1.0),
        lambda: sparsity.design(row, length=64, n_eff=3.0),
        lambda: sparsity.sweep(row, gamma=[1.0, 2.0]),
        lambda: sparsity.stacks.mixing.Stack(kernel=kernel.name),
    ):
        with pytest.raises(InputError, match=r"its weights depend on the whole row; use exact"):
            ask()
    with pytest.raises(InputError, match="law of its scores or set a needle"):
        row.then(sparsity.Alibi(0.1))


@pytest.mark.parametrize(
    "kernel",
    [pytest.param(k, marks=[] if k.name == "sparsemax" else pytest.mark.slow) for k in MAPS],
    ids=lambda kernel: kernel.name,
)
def test_a_map_is_sampled_again_from_its_seed(kernel):
    row, asked = Row(kernel.name, beta=0.0, gamma=1.5), {"length": 8, "of": "participation"}
    found = [sparsity.estimate(row, **asked, rel_error=0.02, seed=5) for _ in range(2)]
    assert found[0].value == found[1].value
    assert found[0].length == 8


def quick_of(kernel):
    """Laws that take no more than tenths of a second."""
    return [x for x in maps.known(kernel) if not maps.slow(kernel, quantities.named(x))]


def sampled_names(kernel):
    """Quantities that are asked of sampled rows, in one order: so their sampler compiles once."""
    quick = [*quick_of(kernel), *(["max_weight"] if kernel.name == "entmax1.5" else [])]
    known = quick if kernel in WITH_SLOW else maps.known(kernel)
    return [x for x in maps.known(kernel) if x in known and quantities.named(x).linear is None]


@functools.cache
def drawn(name, length=16, to=2e-3, **own):
    """Rows of a map that several tests look at, in float32 as all here that are compared."""
    row = Row(name, **own)
    names = sampled_names(row.kernel) if length == 16 else ("participation", "n_eff", "support")
    return draw_rows(row, length, Sampling(to, seed=11, dtype=np.float32), names)


WITH_SLOW = [kernel for kernel in MAPS if len(quick_of(kernel)) < len(maps.known(kernel))]


@pytest.mark.parametrize("kernel", WITH_SLOW, ids=lambda kernel: kernel.name)
def test_quick_laws_are_verified(kernel):
    row, way = Row(kernel, gamma=1.0), ("exact law", "whole rows")
    cells = [Question(row, way, x, 16) for x in sampled_names(kernel)]
    found = check(cells, seed=1, detectable=4e-2, dtype=np.float32)
    assert [cell.verdict for cell in found] == ["agree"] * len(cells)
    assert len(found) >= 2


@pytest.mark.parametrize(
    "kernel",
    [pytest.param(k, marks=pytest.mark.slow) if k in WITH_SLOW else k for k in MAPS],
    ids=lambda kernel: kernel.name,
)
def test_every_law_is_verified(kernel):
    row = Row(kernel, beta=0.0, gamma=1.0)
    names = maps.known(kernel)
    if not names:
        with pytest.raises(InputError, match="has no exact law to compare samples with"):
            sparsity.verify(row, length=6)
        return
    found = sparsity.verify(row, length=16, detectable=4e-2, seed=1, dtype=np.float32)
    assert found.agree
    own = [name for name in names if quantities.named(name).linear is None]
    assert sorted(cell.quantity for cell in found.cells) == sorted(own)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("derive sparsemax", "kernel = sparsemax: its weights depend on the whole row"),
        ("eval sparsemax --gamma 2", "kernel = sparsemax: its weights depend on the whole row"),
        ("eval sparsemax --gamma 2 --length 9", "kernel = sparsemax: its weights depend on the"),
        ("exact sparsemax --gamma 2 --length 9 --of entropy", "of = entropy: sparsemax has"),
        ("exact sparsemax --length 9", "gamma is missing: sparsemax needs gamma"),
        (
            "exact sparsemax --gamma 2 --length 9 --step alibi:1",
            "steps = (Alibi(slope=1),): sparsemax",
        ),
        ("estimate sparsemax --gamma 2", "length is missing: the weights of sparsemax depend"),
        ("estimate sparsemax --gamma 2 --length 9 --decay 0.5", "decay = 0.5: sparsemax does not"),
        (
            "estimate sparsemax --gamma 2 --length 2000000",
            "length = 2000000: sparsemax needs",
        ),
        ("verify sparsemax --gamma 2", "length is missing: the weights of sparsemax depend"),
        ("design sparsemax --length 9 --n-eff 3", "kernel = sparsemax: its weights depend"),
        ("exact sparsmax --gamma 2 --length 9", "kernel = sparsmax: did you mean sparsemax?"),
    ],
)
def test_what_is_refused_is_refused_in_one_line(command, line, says):
    code, out, err = command(*line.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"sparsity: {says}")
    assert err.count("\n") == 1


# Sparsemax.


def test_sparsemax_by_sorting_and_by_bisection():
    for n in (1, 2, 5, 40, 300):
        s = rows(n)
        p = kernels.sparsemax.weights(s)
        tau = bisected(lambda t, s=s: np.maximum(s - t, 0).sum(-1, keepdims=True) - 1, s)
        assert_allclose(p, np.maximum(s - tau, 0), atol=1e-13)
        falling = -np.sort(-s, axis=-1)
        over = np.cumsum(falling, axis=-1)
        rank = np.arange(1, n + 1)
        count = (1 + rank * falling > over).sum(-1)
        tau = (over[np.arange(len(s)), count - 1] - 1) / count
        assert_allclose(p, np.maximum(s - tau[:, None], 0), atol=1e-13)
    assert kernels.sparsemax.weights(np.array([0.0, 5.0, 1.0])).tolist() == [0, 1, 0]
    assert_allclose(kernels.sparsemax.weights(np.full(7, 3.0)), 1 / 7, rtol=1e-15)


def two_keys(gamma, weigh=lambda count, y2: y2):
    """The mean of a function of K and Y₂ over rows of two, from their difference N(0, 2γ²)."""
    s = math.sqrt(2) * gamma
    alone = 2 * ndtr(-1 / s)

    def both(d):
        density = 2 * math.exp(-(d**2) / (2 * s * s)) / (s * math.sqrt(2 * math.pi))
        return density * weigh(2, (1 + d * d) / 2)

    cuts = [x * s for x in (0.5, 2, 5, 9) if x * s < 1]
    return alone * weigh(1, 1) + quad(both, 0, 1, epsabs=1e-15, epsrel=1e-13, points=cuts)[0]


@pytest.mark.parametrize("gamma", [1e-4, 0.01, 0.06, 0.09, 0.1, 0.3, 1.0, 2.0, 5.0, 50.0, 1e4])
def test_sparsemax_of_two_keys(gamma):
    for of, true in (
        ("participation", two_keys(gamma)),
        ("support", two_keys(gamma, lambda count, y2: count)),
    ):
        found = law("sparsemax", of, gamma=gamma, length=2)
        assert abs(found.value / true - 1) <= min(found.error_bound + 1e-14, 5e-12)
        assert found.error_bound < 2e-9
    for of, true in (
        ("n_eff", two_keys(gamma, lambda count, y2: 1 / y2)),
        ("S", two_keys(gamma, lambda count, y2: (2 * y2) ** -0.5)),
    ):
        found = law("sparsemax", of, gamma=gamma, length=2)
        assert abs(found.value / true - 1) <= min(found.error_bound + 1e-14, 1e-11)
        assert found.error_bound < 2e-7


@pytest.mark.parametrize("gamma", [0.05, 0.2, 0.5, 2.0])
def test_sparsemax_of_three_keys(gamma):
    """By the two gaps between sorted scores: no threshold, no contour."""

    def of_gaps(b, a, what):
        scatter = 2 / 3 * (a * a + a * b + b * b)
        density = math.exp(-scatter / (2 * gamma**2)) * math.sqrt(3) / (math.pi * gamma**2)
        if a >= 1:
            return density
        if a + 2 * b >= 1:
            return density * (2 if what == "support" else (1 + a * a) / 2)
        return density * (3 if what == "support" else 1 / 3 + scatter)

    far = 12 * gamma
    for what in ("support", "participation"):
        true = 0.0
        for first, last in ((0.0, 1.0), (1.0, 1.0 + far)):
            for low, high in (
                (lambda a: 0.0, lambda a: max((1 - a) / 2, 0.0)),
                (lambda a: max((1 - a) / 2, 0.0), lambda a: max((1 - a) / 2, 0.0) + far),
            ):
                part = dblquad(
                    of_gaps, first, min(last, far) if first == 0 else last, low, high,
                    args=(what,), epsabs=1e-11, epsrel=1e-11,
                )  # fmt: skip
                true += part[0]
        found = law("sparsemax", what, gamma=gamma, length=3)
        assert abs(found.value / true - 1) < 1e-9


def hold(rows, row, length, names, bound=1e-6):
    """Exact laws of the same rows."""
    to = rows.sampling.rel_error
    for of in names:
        found, seen = law(row, of, length=length), rows.estimate(of)
        assert seen.quantity == of
        assert found.error_bound < bound
        assert seen.rel_stderr < to * 1.05
        assert abs(seen.log_value - found.log_value) < 4.5 * seen.rel_stderr
    return True


SPARSEMAX = ((2.0, 2), (2.0, 16), (0.3, 16), (1.0, 16), (2.0, 256), (0.5, 256), (2.0, 4096))


@pytest.mark.parametrize(
    ("gamma", "length"),
    [
        pytest.param(*at, marks=[] if at[1] in (16, 256) else pytest.mark.slow) for at in SPARSEMAX
    ],  # a length compiles once
)
def test_sparsemax_of_sampled_rows(gamma, length):
    rows = drawn("sparsemax", length, to=2e-3 if length <= 256 else 1e-2, gamma=gamma)
    names = ("participation", "support", *(("n_eff", "S") if length == 16 else ()))
    assert hold(rows, Row("sparsemax", gamma=gamma), length, names)


@pytest.mark.parametrize(("gamma", "length"), [*SPARSEMAX, (0.02, 64), (5.0, 65536), (0.1, 10**9)])
def test_a_finer_rule_of_sparsemax_agrees(gamma, length, monkeypatch):
    found = sparsemax.law(gamma, np.array([length]))
    monkeypatch.setattr(threshold_maps, "STEP", 0.037)
    monkeypatch.setattr(sparsemax.Sparsemax, "points", 301)
    fine = sparsemax.law(gamma, np.array([length]))
    off = np.abs(fine.value / found.value - 1)
    assert (off <= found.error).all()
    assert (found.error <= 1e-8).all()
    assert_allclose(found.total, 1, atol=1e-11)


def test_sparsemax_in_known_places():
    lengths = np.unique(np.geomspace(1, 65536, 12).astype(int))
    for gamma in (1e-3, 0.1, 2.0, 30.0):
        found = sparsemax.law(gamma, lengths)
        size, y2 = found.value
        assert (found.error < 2e-9).all()
        assert size[0] == y2[0] == 1
        assert (np.diff(size) > 0).all()
        assert (np.diff(y2) < 0).all()
        assert (y2 * size >= 1 - 1e-9).all()  # Y₂ ≥ 1/K, and E 1/K ≥ 1/E K
    assert_allclose(law("sparsemax", gamma=2.0, length=256).value, 0.6511567, atol=1e-7)
    shifted = law("sparsemax", gamma=2.0, beta=-7.0, length=256)
    assert shifted.value == law("sparsemax", gamma=2.0, length=256).value
    for gamma in (0.02, 2.0):
        y2, n_eff, S = (
            law("sparsemax", of, gamma=gamma, length=[16, 4096]).value
            for of in ("participation", "n_eff", "S")
        )
        root_n = np.array([4.0, 64.0])
        assert (n_eff * y2 >= 1).all()  # Jensen
        assert (n_eff * (root_n * S) ** -2 >= 1).all()
    shaped = law("sparsemax", gamma=2.0, length=[[2, 16], [256, 4096]])
    assert shaped.value.shape == shaped.error_bound.shape == (2, 2)
    data = sparsity.sweep("sparsemax", gamma=[1.0, 2.0], length=[16, 256], of="participation")
    found = data["participation"].sel(gamma=2.0, length=256).squeeze()
    assert_allclose(found, 0.6511567, atol=1e-7)


def verdict(cell, value, detectable=2e-2):
    """On a value of the law, from the rows that are drawn once; the right one agrees."""
    own = {name: x for name, x in cell.row.params.items() if name == "gamma" or x}
    rows = drawn(cell.kernel.name, **own).estimate(cell.quantity)
    right, judged = (judge(cell, x, rows, 1e-4, detectable) for x in (cell.theory(), value))
    assert right.verdict == "agree"
    return judged.verdict


@pytest.mark.parametrize("planted", ["none", "mean field", "no slope"])
def test_planted_wrong_laws_of_sparsemax_are_rejected(planted):
    """The threshold of nE(s − τ)₊ = 1, and the factor |G′| = K left out."""
    gamma, n = 1.0, 16
    cell = Question(Row("sparsemax", gamma=gamma), ("exact law", "whole rows"), "participation", n)
    value = cell.theory()
    if planted == "mean field":
        density = lambda t: math.exp(-t * t / 2) / math.sqrt(2 * math.pi)  # noqa: E731
        excess = lambda t: n * gamma * (density(t) - t * ndtr(-t)) - 1  # noqa: E731
        t: float = brentq(excess, -9, 9)  # type: ignore[assignment]
        over = density(t)
        value = math.log(n * gamma**2 * ((1 + t * t) * ndtr(-t) - t * over))
    if planted == "no slope":
        bare = two_keys(gamma, lambda count, y2: y2 / count)
        assert abs(law("sparsemax", gamma=gamma, length=2).value / bare - 1) > 0.1
        value = value - math.log(law("sparsemax", "support", gamma=gamma, length=n).value)
    assert verdict(cell, value) == ("agree" if planted == "none" else "disagree")


# Top-k softmax.


def sorted_weights(s, k):
    """Softmax of the k largest, by sorting."""
    a = np.exp(-np.sort(-s, axis=-1)[:, :k])
    return a / a.sum(-1, keepdims=True)


def test_top_k_by_sorting():
    rng = np.random.default_rng(8)
    for n, k in ((1, 8), (5, 8), (8, 8), (9, 8), (60, 3), (60, 59), (30, 1)):
        s = rng.normal(size=(100, n)) * 2
        p = kernels.top_k(k).weights(s)
        assert_allclose(-np.sort(-p, axis=-1)[:, :k], sorted_weights(s, k), rtol=1e-13)
        assert ((p > 0).sum(-1) == min(n, k)).all()
    assert kernels.named("topk:16") == kernels.top_k(16) != kernels.top_k(8)
    for name, says in (("topk", "topk:8"), ("topk:0", ">= 1"), ("topk:two", "whole number")):
        with pytest.raises(InputError, match=says):
            kernels.named(name)


def test_the_top_of_two_and_of_three():
    """Two of three scores: the gap between the largest two has a density of its own."""
    for gamma in (0.3, 1.0, 4.0):
        for of in ("participation", "n_eff", "entropy", "S"):
            found = law("topk:2", of, gamma=gamma, length=[1, 2])
            same = law("exp", of, gamma=gamma, length=[1, 2])
            assert_allclose(found.value, same.value, rtol=1e-13)

        def weighed(d, gamma=gamma):  # of s₁ − s₂ in a row of three: d/γ√2 and the third below
            p = 1 / (1 + math.exp(-d))
            z = d / gamma
            density = 6 / (gamma * 2 * math.sqrt(math.pi)) * math.exp(-z * z / 4)
            # the mean of s₁ and s₂ is N(0, γ²/2), the third is below s₂ = mean − d/2
            return density * ndtr(-z / math.sqrt(6)) * (p * p + (1 - p) ** 2)

        true = quad(weighed, 0, 20 * gamma, epsabs=1e-14, epsrel=1e-13)[0]
        found = law("topk:2", gamma=gamma, length=3)
        assert abs(found.value / true - 1) <= found.error_bound < 1e-8


@pytest.mark.parametrize(
    ("k", "gamma", "length"),
    [
        (8, 1.0, 16),
        pytest.param(2, 1.0, 16, marks=pytest.mark.slow),
        pytest.param(8, 2.0, 256, marks=pytest.mark.slow),
        (64, 1.0, 256),
    ],
)
def test_top_k_of_sampled_rows(k, gamma, length):
    row, names = Row(f"topk:{k}", gamma=gamma), ("participation", "n_eff", "entropy", "S")
    if length == 16:
        rows = drawn(f"topk:{k}", gamma=gamma)
    else:
        rows = draw_rows(row, length, Sampling(4e-3, seed=12, dtype=np.float32), names)
    assert hold(rows, row, length, names, bound=1e-8)


def test_top_k_in_known_places(monkeypatch):
    lengths = np.unique(np.geomspace(9, 65536, 60).astype(int))
    for gamma in (0.3, 2.0):
        for of in ("participation", "entropy"):
            found = law("topk:8", of, gamma=gamma, length=lengths)
            assert (found.error_bound < 1e-8).all()
            assert (np.diff(found.value) * (1 if of == "entropy" else -1) > 0).all()
    # With as many kept as there are but one, it is near softmax of them all.
    near, all_ = (law(x, gamma=1.0, length=200).value for x in ("topk:199", "exp"))
    assert_allclose(near, all_, rtol=1e-3)
    assert law("topk:1", gamma=2.0, length=50).value == 1
    assert law("topk:5", "support", gamma=2.0, length=[3, 50]).value.tolist() == [3, 5]
    with pytest.raises(InputError, match="takes too long"):
        law("topk:8", gamma=500.0, length=50)
    found = law("topk:8", gamma=2.0, length=lengths)
    monkeypatch.setattr(top_k, "_NODES", 121)
    monkeypatch.setattr(rules, "STEP", 0.13)
    fine = law("topk:8", gamma=2.0, length=lengths)
    assert (np.abs(fine.value / found.value - 1) <= found.error_bound).all()


def test_a_planted_wrong_law_of_top_k_is_rejected():
    """k scores above the level, where the k-th is at it."""
    cell = Question(Row("topk:8", gamma=1.0), ("exact law", "whole rows"), "participation", 16)
    right, wrong = (
        cell.theory(),
        top_k.law(9, 1.0, np.array([16]), quantities.participation.integral),
    )
    assert verdict(cell, right) == "agree"
    assert verdict(cell, math.log(wrong[0][0])) == "disagree"


# Stick-breaking.


def broken(s):
    """Stick-breaking weights, key by key from the query back, and what is left."""
    rest, found = np.ones(len(s)), np.zeros(s.shape)
    for j in range(s.shape[1] - 1, -1, -1):
        share = 1 / (1 + np.exp(-s[:, j]))
        found[:, j], rest = share * rest, rest * (1 - share)
    return found, rest


def test_stick_breaking_key_by_key():
    s = rows(12) + 0.5
    found, rest = broken(s)
    assert_allclose(kernels.stick_breaking.weights(s), found, rtol=1e-9, atol=1e-15)
    left = kernels.stick_breaking.residual_mass
    assert left is not None
    assert_allclose(left(s), rest, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(("beta", "gamma"), [(-1.0, 0.7), (0.0, 2.0), (2.0, 1.0)])
def test_stick_breaking_of_one_and_two_keys(beta, gamma):
    x = np.linspace(-12, 12, 241)
    w, b = np.exp(-x * x / 2), 1 / (1 + np.exp(-(beta + gamma * x)))
    w /= w.sum()
    first, second = np.meshgrid(b, b)
    a, pair = np.stack([first, (1 - first) * second]), np.outer(w, w)
    for of, alone, both in (
        ("participation", b**2, (a**2).sum(0)),
        ("entropy", entr(b), entr(a).sum(0)),
    ):
        found = law("stick-breaking", of, beta=beta, gamma=gamma, length=[1, 2])
        assert_allclose(found.value, [w @ alone, (pair * both).sum()], rtol=1e-9)
        assert (found.error_bound < 1e-12).all()


@pytest.mark.parametrize(("beta", "gamma"), [(-2.0, 1.0), (-5.0, 2.0)])
def test_stick_breaking_of_sampled_rows(beta, gamma):
    row, names = Row("stick-breaking", beta=beta, gamma=gamma), ("participation", "entropy")
    assert hold(drawn("stick-breaking", beta=beta, gamma=gamma), row, 16, names)


def test_stick_breaking_in_known_places():
    given = {"beta": -3.0, "gamma": 1.0}
    y2 = law("stick-breaking", length=[1, 100, 10**6, 10**12], **given).value
    first, second = (float(np.exp(quadrature.moment(SIGMOID, p, -3.0, 1.0)[0])) for p in (1, 2))
    assert_allclose(y2[0], second, rtol=1e-12)
    assert_allclose(y2[2:], second / (2 * first - second), rtol=1e-12)  # whatever n
    tiny = law("stick-breaking", "entropy", beta=-30.0, gamma=0.5, length=[1, 10])
    assert_allclose(tiny.value[1] / tiny.value[0], 10, rtol=1e-9)
    assert law("stick-breaking", "support", length=7, **given).value == 7
    with pytest.raises(InputError, match="stick-breaking needs beta"):
        law("stick-breaking", gamma=1.0, length=7)
    with pytest.raises(InputError, match="exact laws of n_eff, participation, entropy, max_weight"):
        law("stick-breaking", "S", length=7, **given)


def test_a_planted_wrong_law_of_stick_breaking_is_rejected():
    """Weights that are made to add up to 1: no share is left over."""
    row, n = Row("stick-breaking", beta=-5.0, gamma=2.0), 16
    cell = Question(row, ("exact law", "whole rows"), "participation", n)
    kept, _ = stick_breaking.participation(-5.0, 2.0, np.array([n]))
    whole = float(drawn("stick-breaking", beta=-5.0, gamma=2.0).estimate("n_eff").value)
    assert verdict(cell, math.log(kept[0])) == "agree"
    assert verdict(cell, math.log(1 / whole)) == "disagree"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "beta", "gamma", "names"),
    [
        ("topk:8", 0.0, 2.0, ("participation", "n_eff", "entropy", "S")),
        ("topk:64", 0.0, 1.0, ("participation", "n_eff", "entropy", "S")),
        ("stick-breaking", -3.0, 1.0, ("participation", "entropy")),
        ("stick-breaking", -5.0, 2.0, ("participation", "entropy")),
        ("stick-breaking", -8.0, 2.0, ("participation", "entropy")),
    ],
)
def test_long_sampled_rows_hold_the_laws(name, beta, gamma, names):
    """10⁵ rows of 4096 tokens, the same for all quantities."""
    row, ran = Row(name, beta=beta, gamma=gamma), 0
    sampling = Sampling(1e-9, max_samples=1e5, seed=18, dtype=np.float32)
    drawn = draw_rows(row, 4096, sampling, names)
    for of in names:
        found, rows = law(row, of, length=4096), drawn.estimate(of)
        assert rows.samples >= 1e5
        assert abs(rows.log_value - found.log_value) < 4.5 * math.hypot(rows.rel_stderr, 1e-6)
        ran += 1
    assert ran == len(names)


# Entmax.


def test_entmax_by_bisection():
    for n in (1, 2, 5, 40, 300):
        s = rows(n)
        p = kernels.entmax15.weights(s)
        half = s / 2
        tau = bisected(
            lambda t, half=half: (np.maximum(half - t, 0) ** 2).sum(-1, keepdims=True) - 1, half
        )
        assert_allclose(p, np.maximum(half - tau, 0) ** 2, atol=1e-13)
    assert_allclose(Weights(1.5)(rows(40)), kernels.entmax15.weights(rows(40)), atol=1e-13)
    assert_allclose(Weights(2.0)(rows(40)), kernels.sparsemax.weights(rows(40)), atol=1e-13)
    # Between softmax and sparsemax.
    s = np.array([[0.0, 0.4, 1.0, 1.5]])
    sizes = [(kernels.named(x).weights(s) > 0).sum() for x in ("sparsemax", "entmax1.5")]
    assert sizes == [2, 4]


@pytest.mark.parametrize("alpha", [1.01, 1.1, 1.25, 1.75, 1.9])
def test_entmax_of_any_order_by_bisection(alpha):
    kernel, power, ran = kernels.named(f"entmax:{alpha}"), 1 / (alpha - 1), 0
    for n in (1, 2, 5, 40, 300):
        s = rows(n)
        x = (alpha - 1) * s
        tau = bisected(lambda t, x=x: (np.maximum(x - t, 0) ** power).sum(-1, keepdims=True) - 1, x)
        assert_allclose(kernel.weights(s), np.maximum(x - tau, 0) ** power, atol=3e-12)
        ran += 1
    assert ran == 5
    a = np.exp(s - s.max(-1, keepdims=True))
    away = np.abs(kernel.weights(s) - a / a.sum(-1, keepdims=True)).max()
    assert (away < 0.05) == (alpha == 1.01)  # softmax in the limit α → 1, and far from it beyond


def test_orders_of_entmax_with_a_name():
    assert kernels.named("entmax:1.5") is kernels.entmax15
    assert kernels.named("entmax:2") is kernels.sparsemax
    for typed, says in (
        ("0.5", "from 1.01 to 2"),
        ("x", "give a number"),
        ("", "such as entmax:1.25"),
    ):
        with pytest.raises(InputError, match=says):
            kernels.named(f"entmax:{typed}" if typed else "entmax")


def two_keys_of_entmax(gamma, weigh=lambda count, y2: y2):
    """As `two_keys`: Y₂ = 1 − (1 − d²/4)²/2 of scores d < 2 apart."""
    s = math.sqrt(2) * gamma
    alone = 2 * ndtr(-2 / s)

    def both(d):
        density = 2 * math.exp(-(d**2) / (2 * s * s)) / (s * math.sqrt(2 * math.pi))
        return density * weigh(2, 1 - (1 - d * d / 4) ** 2 / 2)

    cuts = [x * s for x in (0.5, 2, 5, 9) if x * s < 2]
    return alone * weigh(1, 1) + quad(both, 0, 2, epsabs=1e-15, epsrel=1e-13, points=cuts)[0]


@pytest.mark.parametrize("gamma", [1e-4, 0.05, 0.09, 0.11, 0.3, 1.0, 2.0, 5.0, 50.0, 1e4])
def test_entmax_of_two_keys(gamma):
    for of, true in (
        ("participation", two_keys_of_entmax(gamma)),
        ("support", two_keys_of_entmax(gamma, lambda count, y2: count)),
    ):
        found = law("entmax1.5", of, gamma=gamma, length=2)
        assert abs(found.value / true - 1) <= min(found.error_bound + 1e-14, 2e-11)
        assert found.error_bound < 1e-7


ENTMAX = ((0.3, 16), (2.0, 4096))


@pytest.mark.parametrize(("gamma", "length"), ENTMAX)
def test_a_finer_rule_of_entmax_agrees(gamma, length, monkeypatch):
    found = entmax.law(1.5, gamma, np.array([length]))
    monkeypatch.setattr(entmax.EntmaxThreeHalves, "points", 401)
    fine = entmax.law(1.5, gamma, np.array([length]))
    assert (np.abs(fine.value / found.value - 1) <= found.error).all()
    assert (found.error <= 1e-6).all()
    assert_allclose(found.total, 1, atol=1e-11)


def test_entmax_where_every_key_has_a_weight(monkeypatch):
    """The closed form of small spreads against the double integral, which it replaces there."""
    for gamma, n in ((0.09, np.array([2])), (0.05, np.array([5])), (0.025, np.array([30]))):
        closed = entmax.law(1.5, gamma, n)
        assert (closed.error == 1e-15).all()
        with monkeypatch.context() as patch:
            patch.setattr(entmax, "_ALL_IN", np.inf)
            ruled = entmax.law(1.5, gamma, n)
        assert (np.abs(ruled.value / closed.value - 1) <= ruled.error).all()
        assert (ruled.error < 1e-9).all()


def test_entmax_of_sampled_rows():
    row, names = Row("entmax1.5", gamma=2.0), ("participation", "support")
    assert hold(drawn("entmax1.5", gamma=2.0), row, 16, names)


@pytest.mark.slow
def test_entmax_of_many_sampled_rows():
    names, ran = ("participation", "support"), 0
    cells = [(g, n, 5e-4, 12) for n in (2, 16, 256) for g in (0.3, 1.0, 2.0, 4.0)]
    for gamma, length, to, seed in (*cells, (0.5, 4096, 1.5e-3, 13), (2.0, 4096, 1.5e-3, 13)):
        row = Row("entmax1.5", gamma=gamma)
        rows = draw_rows(row, length, Sampling(to, seed=seed, dtype=np.float32), names)
        assert hold(rows, row, length, names)
        ran += 2
    assert ran == 28


@pytest.mark.parametrize("planted", ["none", "mean field", "no slope", "no root"])
def test_planted_wrong_laws_of_entmax_are_rejected(planted):
    """A threshold at which the mean of the sum is 1, |G′| left out, and p = x of Σx = 1."""
    gamma, n = 1.0, 16
    cell = Question(Row("entmax1.5", gamma=gamma), ("exact law", "whole rows"), "participation", n)
    value = cell.theory()
    if planted == "mean field":

        def mean(t, power):
            return quad(lambda x: (x - t) ** power * math.exp(-x * x / 2), t, 12)[0] / math.sqrt(
                2 * math.pi
            )

        t: float = brentq(lambda t: n * gamma**2 / 4 * mean(t, 2) - 1, -9, 9)  # type: ignore[assignment]
        value = math.log(n * gamma**4 / 16 * mean(t, 4))
    if planted == "no slope":
        value -= math.log(law("entmax1.5", "support", gamma=gamma, length=n).value)
    if planted == "no root":
        value = float(law("sparsemax", gamma=gamma / 2, length=n).log_value)
    assert verdict(cell, value) == ("agree" if planted == "none" else "disagree")


def test_entmax_in_known_places():
    lengths = np.array([1, 2, 8, 1000, 65536])
    for gamma in (1e-3, 0.1, 2.0):
        size, y2 = entmax.law(1.5, gamma, lengths).value
        assert size[0] == y2[0] == 1
        assert (np.diff(size) > -1e-9).all()
        assert (np.diff(y2) < 0).all()
        assert (y2 * size >= 1 - 1e-9).all()
        sparse = sparsemax.law(gamma, lengths).value
        assert (sparse[0] <= size * (1 + 1e-9)).all()  # between softmax and sparsemax
        soft = law("exp", gamma=gamma, length=lengths).value
        assert (soft <= y2 * (1 + 1e-9)).all()
    with pytest.raises(InputError, match="not resolved there; use estimate"):
        law("entmax1.5", gamma=0.3, length=10**9)


def test_a_map_without_a_law_is_sampled():
    mine = replace(kernels.entmax15, name="mine")
    row = Row(mine, beta=0.0, gamma=2.0)
    data = sparsity.sweep(
        row, length=64, of=["support", "entropy"], montecarlo=True, rel_error=0.01
    )
    support, error = (float(data[name].squeeze()) for name in ("support_mc", "stderr_support_mc"))
    assert error < 0.0105 * support
    known = law("entmax1.5", "support", gamma=2.0, length=64)
    assert abs(support - known.value) < 4.5 * error
    assert {"support_mc", "entropy_mc"} <= {str(name) for name in data}
    assert "entropy" not in data
    with pytest.raises(InputError, match=r"no exact law of mine is known; use estimate"):
        law(row, length=64)
    with pytest.raises(InputError, match="has no exact law to compare samples with"):
        sparsity.verify(row, length=64)


@pytest.mark.parametrize(
    ("name", "given", "of", "says"),
    [
        ("stick-breaking", {"beta": -800.0, "gamma": 1.0}, "participation", "beta = -800"),
        ("stick-breaking", {"beta": 800.0, "gamma": 1.0}, "entropy", "beta = 800"),
        ("sparsemax", {"beta": 0.0, "gamma": 1e300}, "participation", "at most 1e\\+100"),
    ],
)
def test_what_is_out_of_float64_is_refused_in_one_line(name, given, of, says):
    with pytest.raises(InputError, match=says) as refused:
        sparsity.exact(name, length=4, of=of, **given)
    assert "\n" not in str(refused.value)


def test_top_k_has_the_power_sums_too():
    asked = {"length": [4, 64], "beta": 0.0, "gamma": 2.0}
    sums = sparsity.exact("topk:8", of="power_sum:2", **asked)
    ratio = sparsity.exact("topk:8", of="participation", **asked)
    assert_allclose(sums.value, ratio.value, rtol=1e-12)
