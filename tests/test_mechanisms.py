"""Maps of more than a score a token: differential, forgetting and Performer attention."""

import json
import math

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

import sparsity
from sparsity import InputError, Row, kernels
from sparsity.crosscheck.cells import Question
from sparsity.crosscheck.verify import judge
from sparsity.exact_law.overlap import mean_product
from sparsity.kernels import row_map
from sparsity.limit import map_limits

# Those with a limit; `router`, which has none, is in test_router.py.
MAPS = tuple(kernel for kernel in kernels.MAPS if kernel.drawn and kernel.unnormalised)
OWN = {
    "differential": {"gamma": 0.5, "gamma2": 0.7, "rho": 0.8, "mix": 0.6},
    "forgetting": {"gamma": 0.8, "gate": 1.0, "gate_spread": 1.2},
    "performer": {"gamma": 0.1, "sigma": 0.15, "features": 3, "dim": 4},
}
each = pytest.mark.parametrize("kernel", MAPS, ids=lambda kernel: kernel.name)


def law(name, of, length, **own):
    return sparsity.exact(name, of=of, length=length, **own)


def made(kernel):
    """What the rows of a map are drawn from."""
    assert kernel.drawn is not None
    return kernel.drawn


def drawn(kernel, own, rows, n, seed=1):
    """What the weights of some rows are of, by NumPy's normals."""
    rng = np.random.default_rng([seed, n])
    tokens = rng.normal(size=(rows, n, made(kernel).token(own)))
    return made(kernel).read(tokens, rng.normal(size=(rows, made(kernel).row(own))), **own)


def softmax(s):
    a = np.exp(s - s.max(-1, keepdims=True))
    return a / a.sum(-1, keepdims=True)


# Definitions, one row and one token at a time.


def plainly(name, of):
    """The weights before the total divides them, or with it at its mean; and the weights."""
    if name == "differential":
        first, second = softmax(of.first), softmax(of.second)
        long = np.exp(of.first - of.gamma**2 / 2) - of.mix * np.exp(of.second - of.gamma2**2 / 2)
        return long, first - of.mix * second
    if name == "forgetting":
        a = np.exp(of.score)
        for j in range(a.shape[1]):
            for i in range(j + 1, a.shape[1]):
                a[:, j] *= np.exp(of.log_gate[:, i])
        return a, a / a.sum(-1, keepdims=True)
    m, a = of.omega.shape[1], np.zeros(of.keys.shape[:2])
    for row, j, i in np.ndindex(*a.shape, m):
        k, omega = of.keys[row, j], of.omega[row, i]
        a[row, j] += math.exp(omega @ (of.query + k) - (of.query @ of.query + k @ k) / 2) / m
    return a, a / a.sum(-1, keepdims=True)


@each
def test_a_definition_holds_on_concrete_rows(kernel):
    own = OWN[kernel.name]
    for n in (1, 2, 7):
        of = drawn(kernel, own, 5, n)
        for function, plain in zip(
            (kernel.unnormalised, kernel.weights), plainly(kernel.name, of), strict=True
        ):
            assert_allclose(function(of), plain, rtol=1e-11, atol=1e-14)
            if n == 7:
                assert_allclose(jax.jit(function)(of), plain, rtol=1e-9, atol=1e-13)
        total = 1 - own.get("mix", 0.0)
        assert_allclose(kernel.weights(of).sum(-1), total, rtol=1e-12)


def test_what_is_drawn_has_the_law_it_says():
    """The maps from normals to scores are linear: their squares are read off unit vectors."""
    unit = np.eye(2)[:, None, :]
    of = made(kernels.differential).read(unit, None, gamma=0.5, gamma2=3.0, rho=-0.3, mix=0.1)
    first, second = of.first[:, 0], of.second[:, 0]
    assert_allclose([first @ first, second @ second], [0.25, 9.0])
    assert_allclose(first @ second, -0.3 * 0.5 * 3.0)
    of = made(kernels.forgetting).read(unit, None, gamma=0.5, gate=1.0, gate_spread=2.0)
    assert_allclose(of.score[:, 0], [0.5, 0])
    assert_allclose(of.log_gate[:, 0], -np.log1p(np.exp([-1.0, -3.0])))
    of = made(kernels.performer).read(
        np.eye(3)[:, None], np.ones((3, 6)), gamma=1.0, sigma=0.25, features=2, dim=3
    )
    assert_allclose(of.query, [4, 0, 0])
    assert_allclose(of.keys[:, 0], 0.25 * np.eye(3))
    assert of.omega.shape == (3, 2, 3)
    assert made(kernels.performer).row({"dim": 3, "features": 2}) == 6


def test_how_far_squares_scatter_by_hand():
    """E a⁴/(E a²)² without cross terms of differential attention, n² E a⁴/Σ E a² of gates."""
    own, gates = OWN["differential"], {"gamma": 0.8, "gate": 1.0, "gate_spread": 0.0}
    second = math.exp(0.25) + 0.36 * math.exp(0.49) - 1.2 * math.exp(0.8 * 0.35)
    fourth = (math.exp(1.5) + 0.6**4 * math.exp(6 * 0.49)) / second**2
    assert map_limits.log_scatter(kernels.differential, own, 8) == pytest.approx(math.log(fourth))
    seen = sum((1 + math.exp(-1)) ** (-2 * d) for d in range(8))
    true = math.log(64 / seen) + 4 * 0.64
    assert map_limits.log_scatter(kernels.forgetting, gates, 8) == pytest.approx(true)


# Limits by other routes.


def straddle(gamma, gamma2, rho, mix):
    """E|a| and E a² by panels of both normals, the second's cut where a changes sign."""
    x, w = np.polynomial.legendre.leggauss(12)

    def panels(edges):  # [..., edges] -> nodes and weights, [..., panels · 12]
        half = np.diff(edges, axis=-1)[..., None] / 2
        nodes = edges[..., :-1, None] + half * (1 + x)
        shape = (*edges.shape[:-1], -1)
        return nodes.reshape(shape), (half * w).reshape(shape)

    z, share = panels(np.linspace(-12.0, 14.0, 80))
    own = gamma2 * math.sqrt(1 - rho**2)
    first = np.exp(gamma * z - gamma**2 / 2)
    cut = (gamma * z - gamma**2 / 2 + gamma2**2 / 2 - math.log(mix) - gamma2 * rho * z) / own
    cut = np.clip(cut, -11.0, 13.0)[:, None]
    step = np.linspace(0, 1, 25)
    y, inner = panels(np.concatenate([-12 + (cut + 12) * step, cut + (14 - cut) * step[1:]], -1))
    second = mix * np.exp(gamma2 * rho * z[:, None] + own * y - gamma2**2 / 2)
    density = np.exp(-(z[:, None] ** 2 + y**2) / 2) / (2 * math.pi) * inner * share[:, None]
    a = first[:, None] - second
    return (np.abs(a) * density).sum(), (a * a * density).sum()


@pytest.mark.parametrize("own", [(1.0, 1.2, 0.5, 0.8), (2.0, 1.0, -0.7, 0.2)])
def test_the_limit_of_differential_rows(own):
    given = dict(zip(("gamma", "gamma2", "rho", "mix"), own, strict=True))
    first, second = straddle(*own)
    found = sparsity.evaluate("differential", **given)
    assert abs(found.log_S - math.log(first / math.sqrt(second))) < 1e-11
    assert found.error_bound < 1e-12
    # As printed, without a rearrangement.
    g1, g2, rho, mix = own
    sigma = math.sqrt(g1**2 + g2**2 - 2 * rho * g1 * g2)
    Phi = lambda x: math.erfc(-x / math.sqrt(2)) / 2  # noqa: E731
    for sign, same in ((1, True), (-1, mix == 1)):  # of ln λ: a planted error
        d1 = sigma / 2 - sign * math.log(mix) / sigma
        mean = 2 * (Phi(d1) - mix * Phi(d1 - sigma)) - (1 - mix)
        square = math.exp(g1**2) + mix**2 * math.exp(g2**2) - 2 * mix * math.exp(rho * g1 * g2)
        log_S = math.log(abs(mean) / math.sqrt(square))
        assert (abs(log_S - found.log_S) < 1e-12) == same


def normals(step, far=9.0):
    z = np.arange(-far, far + step / 2, step)
    return z, step * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def test_the_limit_of_forgetting_rows():
    z, share = normals(0.1)
    for gate, spread, gamma, n in ((1.0, 1.2, 0.8, 5), (-2.0, 3.0, 0.3, 40), (6.0, 0.1, 1.0, 9)):
        g = 1 / (1 + np.exp(-(gate + spread * z)))
        d = np.arange(n)
        first, second = (np.sum((share @ g**p) ** d) / n for p in (1, 2))
        true = first * math.exp(gamma**2 / 2) / math.sqrt(second * math.exp(2 * gamma**2))
        own = {"gamma": gamma, "gate": gate, "gate_spread": spread}
        found = sparsity.evaluate("forgetting", length=n, **own)
        assert abs(found.log_S - math.log(true)) < 1e-11
        assert found.error_bound < 1e-10
        assert found.method == "limit form"
        fixed = np.sum((share @ g) ** (2 * d)) / n  # (E g)² for E g²
        assert abs(0.5 * math.log(fixed / second)) > 1e-8
    with pytest.raises(InputError, match="depends on its length"):
        sparsity.evaluate("forgetting", **own)


def test_the_limit_of_performer_rows():
    """All features and the key on one grid, in one dimension."""
    w, share = normals(0.4, 10.0)
    k, of_key = normals(0.4, 8.0)
    gamma, sigma = 0.06, 0.12
    q = gamma / sigma
    x = np.exp(w * (q + sigma * k[:, None]) - (q**2 + (sigma * k[:, None]) ** 2) / 2)
    a = (x[:, :, None] + x[:, None]) / 2  # two features, [key, ω, ω]
    for m, weight, mean in ((1, share, x), (2, np.outer(share, share), a)):
        axes = tuple(range(1, mean.ndim))
        first, second = (of_key @ (mean**p * weight).sum(axes) for p in (1, 2))
        found = sparsity.evaluate("performer", gamma=gamma, sigma=sigma, features=m, dim=1)
        assert abs(found.log_S - math.log(first / math.sqrt(second))) < 1e-9
        other = sparsity.evaluate("performer", gamma=gamma, sigma=sigma, features=m + 1, dim=1)
        assert abs(other.log_S - found.log_S) > 0.01
        fourth = of_key @ (mean**4 * weight).sum(axes)
        own = {"gamma": gamma, "sigma": sigma, "features": m, "dim": 1}
        scatter = map_limits.log_scatter(kernels.performer, own, 1)
        assert abs(scatter - math.log(fourth / second**2)) < 1e-6


def test_many_features_are_softmax():
    own = {"gamma": 0.7, "sigma": 0.3, "dim": 16}
    gaps = sparsity.evaluate("performer", features=10.0 ** np.arange(2, 15, 3), **own).log_S
    gaps = gaps - sparsity.evaluate("exp", gamma=0.7).log_S
    assert (gaps < 0).all()
    assert (np.diff(gaps) > 0).all()
    assert abs(gaps[-1]) < 1e-9
    assert_allclose(gaps[-2] / gaps[-1], 1e3, rtol=1e-2)
    with pytest.raises(InputError, match="infinite whatever the features"):
        sparsity.evaluate("performer", features=10**6, gamma=0.1, sigma=0.71, dim=2)


# E Σ p⁽¹⁾p⁽²⁾ of two softmax maps.


def test_the_product_of_two_maps_over_two_tokens():
    """Over the difference of either score, by a grid of normals."""
    z, share = normals(0.2)
    for g1, g2, rho in ((1.0, 1.2, 0.5), (2.0, 0.3, -0.9), (0.7, 0.7, 1.0)):
        turned = rho * z[:, None] + math.sqrt(1 - rho**2) * z
        p, other = (1 / (1 + np.exp(-math.sqrt(2) * x)) for x in (g1 * z[:, None], g2 * turned))
        true = share @ (p * other + (1 - p) * (1 - other)) @ share
        (value,), (error,) = mean_product(g1, g2, rho, np.array([2]))
        assert abs(value / true - 1) <= error + 1e-12 < 1e-7
        (off,), _ = mean_product(g1 * (1 + 1e-4), g2, rho, np.array([2]))
        assert abs(off / true - 1) > 1e-6


# Instruments.


@each
def test_a_map_is_first_class(kernel, command):
    own = OWN[kernel.name]
    row = Row(kernel.name, **own)
    assert row.kernel == kernel == kernels.named(kernel.name)
    assert eval(repr(row), {"Row": Row}) == row
    options = [x for name, value in own.items() for x in (f"--{name.replace('_', '-')}", value)]
    code, out, err = command(
        "eval", kernel.name, *options, *(["--length", 9] * (not kernel.identically_distributed))
    )
    assert (code, err) == (0, "")
    shown = float(out.split("S      = ")[1].split()[0])
    assert_allclose(shown, sparsity.evaluate(row, length=9).S, rtol=1e-11)
    code, out, err = command("list")
    assert any(line.startswith(f"{kernel.name} ") for line in out.splitlines())
    for ask in (
        lambda: sparsity.derive(kernel.name),
        lambda: sparsity.design(row, length=64, n_eff=3.0),
        lambda: sparsity.stacks.mixing.Stack(kernel=kernel.name),
    ):
        with pytest.raises(InputError, match="its weights depend on the whole row; use exact"):
            ask()
    place = {} if kernel.identically_distributed else {"length": 9}
    # Rows of n have no exact law: they are swept by sampling, beside the limit.
    sampled = {"montecarlo": True, "max_samples": 1e3} if place else {}
    swept = sparsity.sweep(row, gamma=[0.1, 0.2], **place, **sampled)
    true = sparsity.evaluate(row.replace(gamma=0.2), **place).S
    assert_allclose(swept["S_limit" if place else "S"].sel(gamma=0.2).squeeze(), true, rtol=1e-13)
    assert ("n_eff_mc" in swept) == bool(place)
    assert "n_eff" not in swept


@pytest.mark.thorough
@pytest.mark.parametrize("kernel", MAPS[1:], ids=lambda kernel: kernel.name)
def test_a_limit_is_verified_and_planted_errors_are_not(kernel):
    row, detectable = Row(kernel, **OWN[kernel.name]), 2e-2
    found = sparsity.verify(row, length=6, detectable=detectable, seed=1)
    assert found.agree
    (cell,) = found.cells  # there is no exact law
    question = Question(row, cell.instruments, cell.quantity, cell.parameters.get("length"))
    for wrong in (cell.theory - 0.03, cell.theory + 0.03):
        assert judge(question, wrong, cell.estimate, 1e-5, detectable).verdict == "disagree"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "exact differential --gamma 1 --gamma2 1 --rho 0 --mix 1 --length 9",
            "of = n_eff: differential has no exact law; estimate samples it",
        ),
        ("eval differential --gamma 1 --gamma2 1 --rho 2 --mix 1", "rho = 2: must be in [-1, 1]"),
        ("eval differential --gamma 1 --gamma2 1 --rho 0", "mix is missing: differential needs mi"),
        ("eval performer --gamma 1 --sigma 0.8 --features 8 --dim 4", "sigma = 0.8: must be < 1/√"),
        (
            "eval forgetting --gamma 1 --gate 1 --gate-spread 1",
            "length is missing: this row depends",
        ),
        ("estimate forgetting --gamma 1 --gate 1 --gate-spread 1", "length is missing: the weig"),
        (
            "design sparsemax --scores uniform --length 64 --n-eff 8",
            "kernel = sparsemax: its weights depend on the whole row",
        ),
    ],
)
def test_what_is_refused_is_refused_in_one_line(command, line, says):
    code, out, err = command(*line.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"sparsity: {says}")
    assert err.count("\n") == 1


def test_eval_leaves_out_the_laws_that_are_not_known(command):
    line = "eval differential --gamma 1 --gamma2 1 --rho 0 --mix 0.5 --length 20"
    code, out, _ = command(*line.split())
    assert code == 0
    assert "no exact law of n_eff and S_n is known here" in out
    code, out, _ = command(*line.split(), "--json")
    limit = sparsity.evaluate("differential", gamma=1, gamma2=1, rho=0, mix=0.5)
    assert json.loads(out)["S"] == float(limit.S)
    assert not json.loads(out).keys() & {"n_eff", "S_rms", "S_n"}


def test_a_map_without_a_limit_has_no_weights_alone():
    for kernel in kernels.MAPS:
        if kernel.unnormalised is None:
            with pytest.raises(InputError, match="its weights depend on the whole row"):
                _ = kernel.as_unnormalised
        else:
            assert isinstance(kernel.as_unnormalised, row_map.RowMap)
    with pytest.raises(InputError, match="draws its own tokens"):
        sparsity.estimate(Row("forgetting", **OWN["forgetting"]), length=4, of="n_eff", dim=3)
