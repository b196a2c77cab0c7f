"""What must hold for every step, quantity and map, each with a planted error that it rejects."""

import math
import random
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsity
from sparsity import InputError, Row, kernels, quantities
from sparsity.quantities import RowSums
from sparsity.rows import steps as of_rows

STEP = {step.name: step for step in of_rows.ALL}
EXAMPLE = {name: step(*step.example) for name, step in STEP.items()}
Q, ZERO = (1.0, 0.5, -0.3, 0.2), (0.0,) * 4


def row(gamma, *given, kernel="exp"):
    """A row with these steps; of RoPE and CoCA without a γ, and of another kernel about 1."""
    rotary = any(step.name in ("rope", "coca") for step in given)
    beta = 0.0 if kernel == "exp" else 1.0
    return Row(kernel, steps=given, beta=beta, gamma=1.0 if rotary else gamma)


def n_eff(of, length):
    return float(sparsity.exact(of, length=length))


# Of each step two rows that are the same row: mostly its own where it does nothing, and none.
SAME = {
    "decay": lambda g, n: (row(g, STEP["decay"](1.0)), row(g)),
    "alibi": lambda g, n: (row(g, STEP["alibi"](0.0)), row(g)),
    "window": lambda g, n: (row(g, STEP["window"](n)), row(g)),
    "chunk": lambda g, n: (row(g, STEP["chunk"](n)), row(g)),
    "scalable-softmax": lambda g, n: (row(g, STEP["scalable-softmax"](1 / math.log(n))), row(g)),
    "floor-log": lambda g, n: (row(g, STEP["floor-log"](0.1, n + 1, 1)), row(g)),
    "log-n": lambda g, n: (row(g, STEP["log-n"](n)), row(g)),
    "yarn": lambda g, n: (row(g, STEP["yarn"](1.0)), row(g)),
    "longrope": lambda g, n: (row(g, STEP["longrope"](1.0)), row(g)),
    "scale-invariant": lambda g, n: (row(g, STEP["scale-invariant"](1e15)), row(g)),
    "length-bias": lambda g, n: (row(g, STEP["length-bias"](-1.0)), row(g)),
    "soft-cap": lambda g, n: (row(g, STEP["soft-cap"](1e9)), row(g)),
    "sink-logit": lambda g, n: (row(g, STEP["sink-logit"](3.0)), row(g)),
    "sink": lambda g, n: (row(g, STEP["sink"](0.0, g)), row(g)),
    "needle": lambda g, n: (row(g, STEP["needle"](0.0, g)), row(g)),
    "needle-above": lambda g, n: (row(g, STEP["needle-above"](0.0, g)), row(g)),
    "gate": lambda g, n: (row(g, STEP["gate"](0.1)), row(g)),
    "qk-norm": lambda g, n: (row(0.1, STEP["qk-norm"](10**8)), row(0.1)),
    "rope": lambda g, n: (row(g, STEP["rope"](Q, ZERO, g)), row(g * math.hypot(*Q))),
    "coca": lambda g, n: tuple(
        row(g, STEP["coca"](q, 0.9, 0.1)) for q in (Q, tuple(-x for x in Q))
    ),
}
# Of each step that changes n_eff two rows of which the first reads from fewer tokens.
FEWER = {
    "decay": lambda g, n: (row(g, STEP["decay"](0.5)), row(g, STEP["decay"](0.9))),
    "alibi": lambda g, n: (row(g, STEP["alibi"](0.3)), row(g, STEP["alibi"](0.1))),
    "window": lambda g, n: (row(g, STEP["window"](2)), row(g, STEP["window"](3))),
    "chunk": lambda g, n: (row(g, STEP["chunk"](n - 1)), row(g, STEP["chunk"](n))),
    "scalable-softmax": lambda g, n: (
        row(g, STEP["scalable-softmax"](0.9)),
        row(g, STEP["scalable-softmax"](0.4)),
    ),
    "floor-log": lambda g, n: (
        row(g, STEP["floor-log"](0.5, 2, 1)),
        row(g, STEP["floor-log"](0.1, 2, 1)),
    ),
    "log-n": lambda g, n: (row(g, STEP["log-n"](2)), row(g, STEP["log-n"](3))),
    "yarn": lambda g, n: (row(g, STEP["yarn"](16.0)), row(g, STEP["yarn"](4.0))),
    "longrope": lambda g, n: (row(g, STEP["longrope"](32.0, n)), row(g, STEP["longrope"](4.0, n))),
    "scale-invariant": lambda g, n: (
        row(g, STEP["scale-invariant"](1.0)),
        row(g, STEP["scale-invariant"](9.0)),
    ),
    "length-bias": lambda g, n: tuple(
        row(g, STEP["length-bias"](x), kernel="relu2") for x in (-0.5, 0.5)
    ),
    "soft-cap": lambda g, n: (row(g, STEP["soft-cap"](3.0)), row(g, STEP["soft-cap"](0.5))),
    "sink": lambda g, n: (row(0.3, STEP["sink"](6.0)), row(0.3, STEP["sink"](3.0))),
    "needle": lambda g, n: (row(0.3, STEP["needle"](6.0)), row(0.3, STEP["needle"](3.0))),
    "needle-above": lambda g, n: (
        row(0.3, STEP["needle-above"](6.0)),
        row(0.3, STEP["needle-above"](3.0)),
    ),
    "qk-norm": lambda g, n: (row(2.0, STEP["qk-norm"](64)), row(2.0, STEP["qk-norm"](4))),
    "rope": lambda g, n: (row(g, STEP["rope"](Q, ZERO, 2 * g)), row(g, STEP["rope"](Q, ZERO, g))),
    "coca": lambda g, n: (row(g, STEP["coca"](Q, 3.0, 0.1)), row(g, STEP["coca"](Q, 1.0, 0.1))),
}
NO_RATIO = {"sink-logit", "gate"}  # which change no weight over another


def same(law, name, g, n):
    one, other = SAME[name](g, n)
    assert law(one, n) == pytest.approx(law(other, n), rel=1e-7)


def fewer(law, name, g, n):
    one, other = FEWER[name](g, n)
    assert law(one, n) < law(other, n) * (1 - 1e-6)


def alone(law, name, g, n):
    assert law(row(g, EXAMPLE[name]), 1) == pytest.approx(1, rel=1e-12)


def within(law, name, g, n):
    assert 1 <= law(row(g, EXAMPLE[name]), n) * (1 + 1e-9) <= n * (1 + 2e-9)


def off_by_a_thousandth(of, length):
    """Another error for each row, and none of them 0."""
    return n_eff(of, length) * (1 + 1e-3 * (1 + zlib.crc32(repr(of).encode()) % 97) / 97)


OF_STEPS = {
    same: off_by_a_thousandth,
    alone: off_by_a_thousandth,
    fewer: lambda of, n: 1 / n_eff(of, n),
    within: lambda of, n: n + n_eff(of, n),
}


@pytest.mark.parametrize("name", STEP)
@pytest.mark.parametrize("check", OF_STEPS)
def test_steps(check, name):
    if check is fewer and name in NO_RATIO:
        assert name not in FEWER
        return
    drawn = random.Random(f"{check.__name__} {name}")
    for _ in range(2):
        check(n_eff, name, 10 ** drawn.uniform(-0.5, 0.3), drawn.randint(4, 40))
    with pytest.raises(AssertionError):
        check(OF_STEPS[check], name, 1.0, 12)


# Numbers at the edge of each domain: the first beyond it, the second on it.
EDGES = {
    "decay": ((0.0,), (1.0,)), "alibi": ((-1e-9,), (0.0,)), "window": ((0,), (1,)),
    "chunk": ((0,), (1,)), "scalable-softmax": ((0.0,), (1e-9, 0.0)),
    "floor-log": ((0.0,), (1e-9, 1, 0)), "log-n": ((1,), (2,)), "yarn": ((1 - 1e-9,), (1.0, 0.0)),
    "longrope": ((1 - 1e-9, 2), (1.0, 2)),
    "scale-invariant": ((0.0,), (1e-9,)), "length-bias": ((math.inf,), (-1e9,)),
    "soft-cap": ((0.0,), (1e-3,)), "sink-logit": ((math.inf,), (-1e9,)),
    "sink": ((0.0, -1e-9), (0.0, 0.0)), "needle": ((0.0, -1e-9), (0.0, 0.0, 0)),
    "needle-above": ((0.0, 0.0, -1), (0.0, 0.0, 0)), "gate": ((0.0,), (1.0,)),
    "qk-norm": ((1,), (2,)), "rope": ((Q, Q, 0.0), (Q, Q, 1e-9)),
    "coca": ((Q, 0.5, 0.0), (Q, -0.8, 0.1)),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_edges(name):
    beyond, on = EDGES[name]
    with pytest.raises(InputError):
        STEP[name](*beyond)
    STEP[name](*on)


# Of the numbers of quantities: the last of each domain, and beyond it.
DOMAINS = {
    "top_k_mass": (("1",), ("0", "1.5")), "keys_for_mass": (("1e-9", "0.999"), ("0", "1")),
    "power_sum": (("0.5", "8"), ("0.499", "8.001", "1")),
    "sink_mass_above": (("1e-9", "0.999"), ("0", "1")), "weight": (("1",), ("0", "1.5")),
    "needle_odds_above": (("1e-9", "1e9"), ("0",)),
    "needle_snr_above": (("1e-9", "1000000"), ("0", "1000001")),
    "needle_recall": (("2",), ("1", "2.5")), "overlap": (("-1", "1"), ("-1.001", "1.001")),
    "top_k_overlap": (("1,-1", "1,1"), ("0,0.5", "1.5,0.5", "1,-1.001", "1,1.001")),
    "below": (("-1e-9",), ("0",)), "mass_below": (("-1e-9",), ("0",)),
    "tiles_below": (("-1,1",), ("0,1", "-1,0", "-1,1.5")),
    "tiles_mass_below": (("-1,1",), ("0,1", "-1,0", "-1,1.5")),
}  # fmt: skip


@pytest.mark.parametrize("family", quantities.FAMILIES, ids=lambda family: family.name)
def test_edges_of_quantities(family):
    on, beyond = DOMAINS[family.name]
    for number in on:
        assert quantities.named(f"{family.name}:{number}").name.startswith(family.name)
    for number in beyond:
        with pytest.raises(InputError):
            quantities.named(f"{family.name}:{number}")


N = 8
OF = [*quantities.ALL, *(quantities.named(f"{x.name}:{x.example}") for x in quantities.FAMILIES),
      *quantities.OF_MAPS]  # fmt: skip


def sums(a):
    """Rows of weights whose first token is a sink, and the next one, if any, the needle."""
    a = np.asarray(a, float)
    at = min(1, a.shape[-1] - 1)
    others = np.delete(a, at, -1)
    with np.errstate(divide="ignore"):
        log = np.log(a)  # and the other row of a pair is the same
    return RowSums(
        a.shape[-1], a.sum(-1), (a * a).sum(-1), a[..., 0], np.zeros(a.shape[:-1]), a, a.sum(-1),
        np.ones(a.shape[:-1]), a[..., at], others.sum(-1), (others**2).sum(-1), (log, log),
    )  # fmt: skip


# Of a row that reads the needle alone, and of one that reads all N tokens alike.
VALUES = {
    "S": (N**-0.5, 1), "n_eff": (1, N), "participation": (1, 1 / N), "entropy": (0, math.log(N)),
    "kl_uniform": (math.log(N), 0), "varentropy": (0, 0),
    "max_weight": (1, 1 / N), "gini": (1 - 1 / N, 0), "hoyer": (1, 0), "sink_mass": (0, 1 / N),
    "support": (1, N), "needle_mass": (1, 1 / N), "needle_signal": (1, 1 / N),
    "needle_largest": (1, 1), "top_k_mass": (1, None), "keys_for_mass": (1, None),
    "power_sum": (1, None), "sink_mass_above": (0, None), "needle_odds_above": (1, 0),
    "needle_snr_above": (1, 0), "needle_recall": (1, None), "square_sum": (1, 1 / N),
    "abs_sum": (1, 1), "recall": (1, 1), "weight": (0, 1 / N), "below": (1 - 1 / N, 0),
    "mass_below": (0, 0), "tiles_below": (1 - 2 / N, 0), "tiles_mass_below": (0, 0),
    "overlap": (1, 1 / N), "top_k_overlap": (1, 1),
}  # fmt: skip


def value(of, name):
    hot = np.eye(N)[1]
    for a, known in zip((hot, np.ones(N)), VALUES[name.partition(":")[0]], strict=True):
        if known is not None:
            assert of(sums(a)) == pytest.approx(known, abs=1e-12)


def scale_free(of, name):
    a = np.random.default_rng(1).exponential(size=(50, N)) ** 3
    np.testing.assert_allclose(of(sums(7 * a)), of(sums(a)), rtol=1e-12)


def orderless(of, name):
    a = np.random.default_rng(2).exponential(size=(50, N)) ** 3
    b = a[:, [0, 1, *range(N - 1, 1, -1)]]  # a sink and a needle stay what they are
    np.testing.assert_allclose(of(sums(a)), of(sums(b)), rtol=1e-12)


def in_range(of, name):
    """Between what one token and all tokens have, but for what goes by the number of tokens."""
    a = np.random.default_rng(3).exponential(size=(200, N)) ** 3
    logs = {"entropy": math.log(N), "kl_uniform": math.log(N), "varentropy": math.log(N) ** 2}
    most = N if name in ("n_eff", "support") or "keys" in name else logs.get(name, 0)
    assert np.all((of(sums(a)) >= 0) & (of(sums(a)) <= max(most, 1) * (1 + 1e-12)))


OF_QUANTITIES = {
    value: lambda of, x: of(x) * 1.001 + 0.001,
    scale_free: lambda of, x: of(x) + 1e-3 * x.l1,
    orderless: lambda of, x: of(x) + 1e-3 * x.weights[..., -1],
    in_range: lambda of, x: of(x) + N,
}


@pytest.mark.parametrize("quantity", OF, ids=lambda quantity: quantity.name)
@pytest.mark.parametrize("check", OF_QUANTITIES)
def test_quantities(check, quantity):
    check(quantity.of, quantity.name)
    with pytest.raises(AssertionError):
        check(lambda x: OF_QUANTITIES[check](quantity.of, x), quantity.name)


@pytest.mark.parametrize("quantity", OF, ids=lambda quantity: quantity.name)
def test_quantities_of_jax_are_those_of_numpy(quantity):
    rows = sums(np.random.default_rng(0).exponential(size=(3, N)))
    of_jax = jax.tree.map(lambda x: jnp.asarray(x) if np.ndim(x) else x, rows)
    np.testing.assert_allclose(quantity.of(of_jax), quantity.of(rows), 1e-12)


@pytest.mark.parametrize("quantity", [x for x in OF if x.integral], ids=lambda x: x.name)
@pytest.mark.parametrize("n", [1, 2, 6])
def test_rows_reach_the_ends_of_an_integral_and_none_goes_beyond(quantity, n):
    a = np.array([np.roll(np.arange(n) < k, by) for k in range(1, n + 1) for by in (0, 1)])
    if quantity is quantities.varentropy:  # one token above all others, which are alike
        a = np.where(np.arange(n) == 0, np.geomspace(1, 1e3, 2000)[:, None], 1.0)
    for units in (np.zeros(1), np.geomspace(1e-9, 1e9, 6000 if quantity.units else 2)):
        rows = sums(np.repeat(a, len(units), 0))
        found = quantity.of(rows._replace(unit=np.tile(units, len(a)) * rows.l1))
        ends = quantity.integral.ends(n, n, len(units) > 1)
        np.testing.assert_allclose([found.min(), found.max()], ends, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "row", "known"),
    [("sink_mass_above:0.5", [1, 1, 0], 0), ("needle_odds_above:0.5", [2, 1, 0], 0),
     ("needle_snr_above:0.5", [2, 1, 0], 0), ("needle_largest", [1, 1, 0], 1),
     ("keys_for_mass:0.5", [1, 1, 0], 1), ("support", [1, 1, 0], 2)],
)  # fmt: skip
def test_a_row_at_a_threshold(name, row, known):
    assert quantities.named(name).of(sums([row])) == known


RANKED = [x for x in OF if x.pair or (x.rank_law and not getattr(x.rank_law, "mass", False))]


@pytest.mark.parametrize("quantity", RANKED, ids=lambda quantity: quantity.name)
@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_rows_reach_the_ends_of_ranks_and_of_pairs(quantity, n):
    a = [np.roll(np.arange(n) < k, by) for k in range(1, n + 1) for by in range(n)]
    a = np.array([*a, np.arange(1, n + 1), np.arange(n, 0, -1)], float)
    a += 1e-9 * quantity.name.startswith("top_k_overlap")  # of k keys each
    rows, other = sums(np.repeat(a, len(a), 0)), np.tile(a, (len(a), 1))
    with np.errstate(divide="ignore"):
        found = quantity.of(rows._replace(pair=(rows.pair[0], np.log(other))))
    np.testing.assert_allclose([found.min(), found.max()], quantity.ends(n), atol=1e-12)
    if quantity.rank_law:
        alike = quantity.of(sums(np.ones(n)))
        np.testing.assert_allclose(quantity.rank_law.alike(n), alike, atol=1e-12)


@pytest.mark.parametrize("steps", [(), (of_rows.SinkLogit(2.0), of_rows.Alibi(0.1))])
def test_quantities_that_are_the_same_have_the_same_law(steps):
    given = Row("relu2", beta=0.5, gamma=1.0, steps=steps)
    one, other = (sparsity.exact(given, length=9, of=x) for x in ("power_sum:2", "participation"))
    assert float(one) == pytest.approx(float(other), rel=1e-10)
    assert float(sparsity.exact(given, length=9, of="power_sum:3")) < 0.99 * float(other)


# What a weight beside the tokens, as large as all of theirs, leaves of each.
BESIDE = {"participation": 1 / 4, "max_weight": 1 / 2, "top_k_mass": 1 / 2, "needle_mass": 1 / 2,
          "n_eff": 1, "S": 1, "gini": 1, "needle_signal": 1}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_a_weight_beside_the_tokens_takes_its_share(name):
    (quantity,) = (x for x in OF if x.name.partition(":")[0] == name)
    row = sums(np.random.default_rng(5).exponential(size=(50, N)))
    beside = row._replace(unit=row.l1) if quantity.units else row
    np.testing.assert_allclose(quantity.of(beside), BESIDE[name] * quantity.of(row), rtol=1e-12)
    assert quantity.units == (BESIDE[name] < 1)


OF_SCORES = [kernel for kernel in kernels.MAPS if kernel.drawn is None]
ORDERED = {"stick-breaking"}  # a key takes of what later keys have left


def adds_up(weigh, kernel, s):
    left = 0 if kernel.residual_mass is None else kernel.residual_mass(s)
    assert np.all(weigh(s) >= 0)
    np.testing.assert_allclose(weigh(s).sum(-1) + left, 1, rtol=1e-12)


def keeps_order(weigh, kernel, s):
    """A key with a larger score has no smaller weight; where keys stand does not matter."""
    if kernel.name in ORDERED:
        return adds_up(weigh, kernel, s)
    p = weigh(s)
    np.testing.assert_allclose(weigh(s[:, ::-1])[:, ::-1], p, rtol=1e-9, atol=1e-15)
    by_score = np.take_along_axis(p, np.argsort(s, -1), -1).astype(float)
    assert np.all(by_score[:, 1:] >= by_score[:, :-1] - 1e-12)
    return None


def sharpens(weigh, kernel, s):
    """Σp² grows with the spread; without one all keys are alike, but for those in order."""
    focus = [float((weigh(c * s) ** 2).sum(-1).mean()) for c in (0.0, 0.5, 1.0, 2.0, 4.0)]
    assert np.all(np.diff(focus) > 0)
    if kernel.name not in ORDERED:
        assert focus[0] == pytest.approx(1 / s.shape[-1], rel=1e-12)


OF_MAPS = {
    adds_up: lambda p: p * 1.001,
    keeps_order: lambda p: p * (1.001 - np.arange(p.shape[-1]) * 0.1),
    sharpens: np.ones_like,
}


@pytest.mark.parametrize("kernel", OF_SCORES, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("check", OF_MAPS)
def test_maps(check, kernel):
    s = np.random.default_rng(4).normal(size=(200, 12))
    check(kernel.weights, kernel, s)
    with pytest.raises(AssertionError):
        check(lambda x: OF_MAPS[check](kernel.weights(x)), kernel, s)


# Maps that draw their own tokens: numbers with which the map is the softmax of the scores beside
# them, which are made of the normals of tokens z and of rows w; and others, with Σ of the weights.
OF_TOKENS = {
    "differential": (
        {"gamma": 2.0, "gamma2": 1.0, "rho": 0.3, "mix": 0.0}, lambda z, w: 2 * z[..., 0],
        {"gamma": 2.0, "gamma2": 1.0, "rho": 0.3, "mix": 0.4}, 0.6,
    ),
    "forgetting": (
        {"gamma": 2.0, "gate": 50.0, "gate_spread": 0.0}, lambda z, w: 2 * z[..., 0],
        {"gamma": 2.0, "gate": 1.0, "gate_spread": 1.0}, 1,
    ),
    "performer": (
        {"gamma": 0.5, "sigma": 0.3, "features": 1, "dim": 4},
        lambda z, w: 0.3 * np.einsum("rnd,rd->rn", z, w) - 0.045 * (z**2).sum(-1),
        {"gamma": 0.5, "sigma": 0.3, "features": 3, "dim": 4}, 1,
    ),
    "router:64": ({"gamma": 2.0, "rho": 1.0}, lambda z, w: 2 * z[..., 0],
                  {"gamma": 2.0, "rho": 0.5}, 1),
    "block-router:4,16": ({"gamma": 2.0, "within": 0.0}, lambda z, w: 2 * z[..., 0],
                          {"gamma": 2.0, "within": 0.5}, 1),
    "tile-softmax:16": ({"gamma": 2.0, "within": 0.0}, lambda z, w: 2 * z[..., 0],
                        {"gamma": 2.0, "within": 0.0}, 1),
}  # fmt: skip


def weights_of(weigh, kernel, own, z):
    w = np.random.default_rng(7).normal(size=(len(z), kernel.drawn.row(own)))
    return weigh(kernel.drawn.read(z, w, **own)), w


def is_softmax(weigh, kernel, z):
    own, scores, _, _ = OF_TOKENS[kernel.name]
    p, w = weights_of(weigh, kernel, own, z)
    a = np.exp(scores(z, w))
    np.testing.assert_allclose(p, a / a.sum(-1, keepdims=True), rtol=1e-12)


def has_its_total(weigh, kernel, z):
    _, _, own, total = OF_TOKENS[kernel.name]
    p, _ = weights_of(weigh, kernel, own, z)
    np.testing.assert_allclose(p.sum(-1), total, rtol=1e-12)


def moves_with_its_tokens(weigh, kernel, z):
    """But for gates, which close on the tokens before: there with all of them open."""
    own = OF_TOKENS[kernel.name][0 if kernel.name == "forgetting" else 2]
    p, back = (weights_of(weigh, kernel, own, x)[0] for x in (z, z[:, ::-1]))
    np.testing.assert_allclose(back[:, ::-1], p, rtol=1e-9)


OF_DRAWN = {
    is_softmax: lambda p: p * 1.001,
    has_its_total: lambda p: p * 1.001,
    moves_with_its_tokens: lambda p: p * (1.001 - np.arange(p.shape[-1]) * 0.1),
}


@pytest.mark.parametrize("kernel", [x for x in kernels.MAPS if x.drawn], ids=lambda x: x.name)
@pytest.mark.parametrize("check", OF_DRAWN)
def test_maps_of_their_own_tokens(check, kernel):
    own = OF_TOKENS[kernel.name][0]
    z = np.random.default_rng(6).normal(size=(50, 12, kernel.drawn.token(own)))
    check(kernel.weights, kernel, z)
    with pytest.raises(AssertionError):
        check(lambda x: OF_DRAWN[check](kernel.weights(x)), kernel, z)


def test_every_member_has_properties():
    assert {*OF_TOKENS} == {kernel.name for kernel in kernels.MAPS if kernel.drawn}
    assert {*SAME} == {*STEP}
    assert {*EDGES} == {*STEP}
    assert {*FEWER} == {*STEP} - NO_RATIO
    assert {*VALUES} == {quantity.name.partition(":")[0] for quantity in OF}
