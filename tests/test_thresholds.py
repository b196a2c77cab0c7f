"""What lies below a threshold under the largest weight: keys, tiles, and the weight they hold."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import integrate, special, stats

import sparsity
from sparsity import InputError, Row, quantities
from sparsity.cli import cli, common

GAMMA = 1.7


def value(kernel, length, of, **given):
    """Return the exact law, and check that its bound is small."""
    law = sparsity.exact(kernel, length=length, of=of, **given)
    assert np.all(law.error_bound < 2e-5), of
    return float(law.value)


def dropped(scores: Any, t: float, tile: int, mass: bool) -> np.ndarray:
    """Return what is dropped of each row, by loops over tiles: the definition once more."""
    return dropped_of(np.exp(scores - scores.max(1, keepdims=True)), t, tile, mass)


def dropped_of(a: Any, t: float, tile: int, mass: bool) -> np.ndarray:
    """Return the same of weights of which the largest is 1."""
    sums, total = a.sum(1), np.zeros(len(a))
    starts = range(0, a.shape[1], tile)
    for first in starts:
        held = a[:, first : first + tile]
        below = held.max(1) < math.exp(t)
        total += (held.sum(1) / sums if mass else 1 / len(starts)) * below
    return total


def test_a_tile_longer_than_the_row_is_the_row():
    """It is not filled up: a billion zeros a row would not fit."""
    weights = np.array([[1.0, 0.1, 0.2]])
    of = quantities.named("tiles_below:-1,1e12")
    assert of.of(quantities.RowSums(3, 1.3, 1.05, 0.0, 0.0, weights)) == 0
    assert value("exp", 3, of, gamma=1.0) == 0


@pytest.mark.parametrize(
    ("kernel", "gamma", "length", "of", "known", "digit"),
    [
        ("exp", 3.0, 4096, "below:-6", 0.93995, 1e-5),
        ("exp", 2.0, 1024, "below:-4", 0.88105, 1e-5),
        ("exp", 3.0, 4096, "tiles_below:-6,64", 0.0874, 1e-4),
        ("relu2", 2.0, 131_072, "tiles_below:-2,64", 0.0415719857, 1e-10),
        ("identity", 2.0, 10**6, "below:-2", 0.5010332634, 1e-10),
    ],
)
def test_known_shares(kernel, gamma, length, of, known, digit):
    """Shares that were found by another program."""
    assert value(kernel, length, of, gamma=gamma) == pytest.approx(known, abs=0.6 * digit)


@pytest.mark.parametrize("t", [-0.5, -2.0, -6.0])
def test_rows_of_two_and_three_by_quadrature(t):
    """One score is below the other with P(|d| > −t)/2; of three, by a grid over two differences."""
    spread = math.sqrt(2) * GAMMA
    of_two = integrate.quad(
        lambda d: 2 * stats.norm.pdf(d, scale=spread) * special.expit(-d), -t, 60, epsabs=0
    )[0]
    assert value("exp", 2, f"below:{t}", gamma=GAMMA) == pytest.approx(
        stats.norm.sf(-t / spread), rel=1e-11
    )
    assert value("exp", 2, f"mass_below:{t}", gamma=GAMMA) == pytest.approx(of_two, rel=1e-8)
    # Given the largest of three, m, the two others are below it: x and y their distances from it.
    x, w = np.polynomial.legendre.leggauss(60)
    cuts = np.unique([0.0, -t, *np.arange(0.5, 24.0, 0.5)])
    half = np.diff(cuts)[:, None] / 2
    d, weight = (cuts[:-1, None] + half * (1 + x)).ravel(), (half * w).ravel()
    near, far = d, d > -t
    # The density of two distances: ∫ φ(m)φ(m − x)φ(m − y) dm, of normal scores.
    density = np.exp(-(near[:, None] ** 2 + d**2 - near[:, None] * d) / 3 / GAMMA**2)
    density *= 3 / (2 * math.pi * math.sqrt(3) * GAMMA**2)
    both = weight[:, None] * weight * density
    a = np.exp(-d)
    lost = (far * a)[:, None] + far * a
    mass = (both * lost / (1 + a[:, None] + a)).sum()
    share = (both * (far[:, None].astype(float) + far)).sum() / 3
    assert value("exp", 3, f"below:{t}", gamma=GAMMA) == pytest.approx(share, rel=1e-8)
    assert value("exp", 3, f"mass_below:{t}", gamma=GAMMA) == pytest.approx(mass, rel=1e-8)


ROWS = [(3, 1.0, 0.0, -1.0), (8, 2.0, 0.0, -2.0), (16, 1.5, 0.0, -2.0), (16, 2.0, 0.3, -2.0),
        (20, 2.5, 0.6, -3.0), (32, 3.0, 0.9, -4.0)]  # fmt: skip
TILE = 8  # keys that are alike; the last tile of 20 keys has 4


@pytest.mark.thorough
@pytest.mark.parametrize("row", range(len(ROWS)))
def test_laws_are_those_of_a_million_rows(row):
    """Six rows, four quantities each: within 4.5 standard errors, and 1 % more is not."""
    length, gamma, within, t = ROWS[row]
    rng = np.random.default_rng([17, row])
    tile = 4 if within else 2
    asked = [
        *((f"below:{t}", 1, False), (f"mass_below:{t}", 1, True)),
        *((f"tiles_below:{t},{tile}", tile, False), (f"tiles_mass_below:{t},{tile}", tile, True)),
    ]
    sums = np.zeros((len(asked), 2))
    for _ in range(10):
        own, shared = rng.standard_normal((2, 100_000, length), np.float32)
        shared = np.repeat(shared[:, ::TILE], TILE, axis=1)[:, :length]
        scores = gamma * (math.sqrt(within) * shared + math.sqrt(1 - within) * own)
        a = np.exp(scores - scores.max(1, keepdims=True))
        for i, (_, size, mass) in enumerate(asked):
            rows = dropped_of(a, t, size, mass)
            sums[i] += rows.sum(), (rows**2).sum()
    found = (
        Row(f"tile-softmax:{TILE}", gamma=gamma, within=within)
        if within
        else Row("exp", gamma=gamma)
    )
    for (of, _, _), (mean, square) in zip(asked, sums / 1e6, strict=True):
        stderr = math.sqrt((square - mean**2) / 1e6)
        law = value(found, length, of)
        assert abs(mean - law) < 4.5 * stderr, of
        assert abs(mean - 1.01 * law) > 4.5 * stderr, of


def test_alike_keys_are_independent_ones_at_correlation_0():
    """Also a tile that does not divide the row, and one key alone."""
    alike = Row("tile-softmax:8", gamma=2.0, within=0.0)
    near = Row("tile-softmax:8", gamma=2.0, within=2e-4)
    for of in ("below:-2", "mass_below:-2", "tiles_below:-2,4", "tiles_mass_below:-2,4"):
        known = value("exp", 30, of, gamma=2.0)
        assert value(alike, 30, of) == pytest.approx(known, rel=1e-12)
        assert value(near, 30, of) == pytest.approx(known, rel=2e-3)
        assert value("exp", 1, of, gamma=2.0) == 0


def test_a_small_share_comes_of_what_hardly_any_tile_shares():
    """Of one tile in 10¹⁴, which the rule over what its keys share has to reach."""
    row = Row("tile-softmax:64", gamma=1.0, within=0.9)
    assert value(row, 100_000, "tiles_below:-12,64") == pytest.approx(7.477323457e-16, rel=1e-9)


def test_of_any_kernel_it_is_the_weight_that_is_below():
    """Of |s|^p the scores of ln λ/p; keys of weight 0 lie below; and keys out of sight do."""
    one, four = (
        value(k, 9, f"below:{t}", beta=0.3, gamma=1.0) for k, t in (("identity", -2), ("s**4", -8))
    )
    assert one == pytest.approx(four, rel=1e-10)
    # The threshold is so low that of two keys above 0 none is dropped: those at 0 are.
    above = special.ndtr(0.5)
    least = (1 - above) * above  # one of two keys at 0, over rows that are not all zero
    law = value("relu2", 2, "below:-60", beta=0.5, gamma=1.0)
    assert law == pytest.approx(least / (1 - (1 - above) ** 2), rel=1e-6)
    seen = value("exp", 8, "below:-2", gamma=2.0)
    windowed = Row("exp", gamma=2.0, steps=(sparsity.Window(8),))
    assert value(windowed, 32, "below:-2") == pytest.approx(1 - (1 - seen) / 4, rel=1e-12)
    assert value(windowed, 32, "mass_below:-2") == value("exp", 8, "mass_below:-2", gamma=2.0)
    with pytest.raises(InputError, match="out of sight"):
        sparsity.exact(windowed, length=32, of="tiles_below:-2,4")


def test_narrow_intervals_keep_their_digits():
    """P(|s| < e^−30 m) is 2φ(β)e^−30 m: of rows of 4 the share has E m of the three others."""
    m = np.linspace(0, 9, 20_001)
    below = special.ndtr(m - 0.2) - special.ndtr(-m - 0.2)
    largest = integrate.simpson(1 - below**3, x=m)
    expected = 2 * stats.norm.pdf(0.2) * math.exp(-30) * largest
    assert value("identity", 4, "below:-30", beta=0.2, gamma=1.0) == pytest.approx(
        expected, rel=1e-9
    )


@pytest.mark.parametrize("steps", [(), (sparsity.Needle(2.0),)])
def test_a_bias_below_0_is_one_above_it_where_scores_have_no_sign(steps):
    """Far from 0 the chance of an interval is a difference that only one of its sides has."""
    of = "needle_largest" if steps else "below:-2"
    above, below = (Row("identity", beta=b, gamma=1.0, steps=steps) for b in (7.0, -7.0))
    assert value(above, 16, of) == pytest.approx(value(below, 16, of), rel=1e-12, abs=0)


@pytest.mark.parametrize(("gamma", "exponent"), [(2, -0.471), (3, -0.707), (4, -0.943)])
def test_the_limit_and_the_exponent_of_n(gamma, exponent):
    """ln λ = γ(Φ⁻¹(S^(1/B)) − E max_n) is near the law, and its slope in ln n is −γ/√(2 ln n)."""
    x = np.linspace(-9, 12, 40_001)
    ends = [4096, 131_072]
    means = []
    for n in ends:
        law = special.ndtr(x) ** n
        means.append(integrate.simpson((x > 0) - law, x=x))
    limit = [gamma * (special.ndtri(0.5 ** (1 / 64)) - mean) for mean in means]
    slope = (limit[1] - limit[0]) / math.log(ends[1] / ends[0])
    assert slope == pytest.approx(exponent, abs=2e-3)
    of: Any = {"of": "tiles_below:-1,64", "value": 0.5, "free": "threshold", "lengths": ()}
    found = [sparsity.design("exp", length=n, gamma=gamma, **of).value for n in ends]
    assert (found[1] - found[0]) / math.log(ends[1] / ends[0]) == pytest.approx(exponent, abs=0.04)
    np.testing.assert_allclose(found, limit, atol=0.12 * gamma)


@pytest.mark.parametrize(
    ("row", "of"),
    [("exp", "below:-1"), ("exp", "mass_below:-1"), ("tile-softmax:64", "tiles_below:-1,64")],
)
def test_design_finds_the_threshold(row, of):
    """The law at what is found is what was wanted; what no threshold drops is out of reach."""
    given: Any = {"gamma": 2.0} | ({"within": 0.3} if row != "exp" else {})
    design = sparsity.design(row, length=1024, of=of, value=0.2, free="threshold", **given)
    assert design.check == pytest.approx(0.2, rel=1e-9)
    tile = of.partition(",")[2]
    shown = f"{of.partition(':')[0]}:{design.value:.5g}{',' if tile else ''}{tile} = 0.2"
    assert all(shown in said for said in (repr(design), design.text()))
    again = f"{of.partition(':')[0]}:{design.value!r}{',' if tile else ''}{tile}"
    assert value(row, 1024, again, **given) == pytest.approx(0.2, rel=1e-9)
    with pytest.raises(InputError, match=r"in rows of 1024|impossible"):
        sparsity.design(row, length=1024, of=of, value=0.9995, free="threshold", **given)
    with pytest.raises(InputError, match="has no threshold"):
        sparsity.design(row, length=1024, of="n_eff", value=5, free="threshold", **given)


def test_weights_of_0_lie_below_every_threshold():
    with pytest.raises(InputError, match=r"from 0\.5 to .* to -80 "):
        sparsity.design(
            "relu2", gamma=1, length=64, of="below:-1", value=0.3, free="threshold", lengths=[]
        )


def test_measured_rows_are_what_the_definition_says():
    """Causal rows of every length, the last tile cut short."""
    q, k = np.random.default_rng(5).standard_normal((2, 2, 13, 8)) * 2
    of = ("below:-1.5", "mass_below:-1.5", "tiles_below:-1.5,4", "tiles_mass_below:-1.5,4")
    data = sparsity.measure(queries=q, keys=k, of=of)
    for head, i in product(range(2), range(13)):
        scores = (k[head, : i + 1] @ q[head, i] / math.sqrt(8))[None]
        for name, tile, mass in zip(of, (1, 1, 4, 4), (False, True) * 2, strict=True):
            expected = float(dropped(scores, -1.5, tile, mass)[0])
            assert data[name].values.reshape(2, 13)[head, i] == pytest.approx(
                expected, rel=1e-6, abs=1e-9
            )


@pytest.mark.parametrize(
    ("of", "said"),
    [
        ("below", "such as below:-2"),
        ("below:0", "a number ln λ below 0"),
        ("below:-6,64", "a number ln λ below 0"),
        ("below:-90", "at least -80"),
        ("tiles_below:-6", "keys of a tile"),
        ("tiles_below:-6,0", "keys of a tile"),
    ],
)
def test_what_is_no_threshold_is_refused(of, said):
    """In one line that says the domain."""
    with pytest.raises(InputError, match=said):
        quantities.named(of)


@pytest.mark.parametrize(
    ("row", "of", "said"),
    [
        (Row("tile-softmax:8", gamma=1.0, within=0.2), "tiles_below:-1,3", "tiles that divide"),
        (Row("tile-softmax:8", gamma=1.0, within=0.99), "below:-1", "to 0.95"),
        (Row("exp", gamma=0.01), "below:-2", "not resolved"),
        (Row("softplus", beta=0.0, gamma=1.0), "below:-1", "use estimate"),
        (Row("relu2", beta=-23.0, gamma=1.0), "mass_below:-2", "takes too long"),
    ],
)
def test_laws_that_are_not_known_are_refused(row, of, said):
    """In one line that says what is."""
    with pytest.raises(InputError, match=said):
        sparsity.exact(row, length=16, of=of)


def test_at_the_prompt_a_comma_may_stand_within_a_quantity():
    """Of a list of quantities and of one."""
    assert common.split_quantities(("gini,tiles_below:-6,64,entropy", "below:-1")) == [
        *("gini", "tiles_below:-6,64", "entropy", "below:-1")
    ]
    asked = ["exp", "--gamma", "3", "--length", "4096", "--of", "tiles_below:-6,64", "--json"]
    assert '"value": 0.0874047534' in CliRunner().invoke(cli, ["exact", *asked]).output
