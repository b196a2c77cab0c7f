"""The design tool: round trips through the public laws, floors, bad input."""

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

from sparsity import (
    Alibi,
    Decay,
    FloorLog,
    InputError,
    LogLength,
    Row,
    ScalableSoftmax,
    Sink,
    SinkLogit,
    Temperature,
    Window,
    Yarn,
    design,
    evaluate,
    exact,
    quantities,
    score_kernel,
    sink_logit,
)
from sparsity.design_search import LENGTHS, Design, Impossible
from sparsity.design_search import search as searching
from sparsity.design_search.free_numbers import GRID_POINTS
from sparsity.design_search.search import MONOTONE
from sparsity.kernels.symbols import s
from sparsity.output import json_ready
from sparsity.quantities.base import RowSums


def by_eval(found: Design, length: int, value: float | None = None) -> float:
    """n_eff by the functions behind `eval`, from the reported value alone."""
    parameters = dict(found.parameters)
    value = found.value if value is None else value
    if found.parameter == "scale":
        parameters["gamma"] *= value * math.log(length)
    else:
        parameters[found.parameter] = value
    if found.kernel == "decayed":
        law = evaluate("decayed", length=length, decay=parameters["decay"])
        return length * float(law.S) ** 2
    return float(exact(found.kernel, length=length, **parameters).value)


CASES = [
    ("exp", 8, {}), ("exp", 4095.99, {}), ("exp", 64, {"beta": 3.0}), ("exp", 300, {"gamma": 0.25}),
    ("relu2", 8, {}), ("relu2", 3000, {"gamma": 2.0}), ("relu2", 8, {"beta": -2.0}),
    ("identity", 2609, {}), ("identity", 4000, {"beta": -2.0}),
    ("decayed", 1.001, {}), ("decayed", 4095, {}),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "wanted", "options"), CASES)
def test_round_trip(kernel, wanted, options):
    found = design(kernel, length=4096, n_eff=wanted, lengths=(), **options)
    assert by_eval(found, 4096) == pytest.approx(wanted, rel=1e-9)
    assert found.n_eff == pytest.approx(wanted, rel=1e-9)
    assert found.error_bound < 1e-9
    assert found.reach.low <= wanted <= found.reach.high
    assert by_eval(found, 4096, found.value * 0.99) != pytest.approx(wanted, rel=1e-9)


ENDS = (LENGTHS[0], LENGTHS[-1])


def test_round_trip_at_every_length_of_the_table():
    """The kernel of a free λ at all of them; the slower ones at the ends."""
    cases: tuple[tuple[str, float, dict[str, Any], Any], ...] = (
        ("exp", 8, {}, ENDS), ("exp", 50, {"gamma": 1.5}, ENDS), ("relu2", 8, {}, ENDS),
        ("relu2", 6, {"beta": -3}, ENDS), ("decayed", 8, {}, None),
    )  # fmt: skip
    for kernel, wanted, options, asked in cases:
        found = design(kernel, length=4096, n_eff=wanted, lengths=asked, **options)
        assert tuple(row.length for row in found.requirements) == (asked or LENGTHS)
        for row in found.requirements:
            assert row.value is not None
            assert by_eval(found, row.length, row.value) == pytest.approx(wanted, rel=1e-6)
            assert row.low < wanted <= row.high


@pytest.mark.parametrize(
    ("kernel", "weight", "wanted"),
    [("exp", np.exp, 8), ("relu2", lambda s: np.maximum(s, 0) ** 2, 8), ("identity", np.abs, 180)],
)
def test_sampled_rows_attend_to_as_many_tokens_as_wanted(kernel, weight, wanted):
    found = design(kernel, length=256, n_eff=wanted, lengths=())
    rng = np.random.default_rng(4)

    def sampled(factor):
        beta, gamma = found.parameters["beta"] * factor, found.parameters["gamma"]
        gamma *= factor if kernel == "exp" else 1
        a = weight(beta + gamma * rng.standard_normal((10_000, 256)))
        tokens = a.sum(axis=1) ** 2 / (a * a).sum(axis=1)
        return tokens.mean() - wanted, tokens.std() / 100

    off, error = sampled(1.0)
    assert abs(off) < 4 * error
    off, error = sampled(1.1)
    assert abs(off) > 4 * error


@pytest.mark.parametrize("share", [0.02, 0.99])
@pytest.mark.parametrize("n", [2, 10**6])
def test_any_wanted_n_eff_of_softmax(share, n):
    wanted = max(n**share, 1 + 0.3 * (n - 1) / n)
    found = design("exp", length=n, n_eff=wanted, lengths=())
    assert by_eval(found, n) == pytest.approx(wanted, rel=1e-9)


def test_long_rows():
    found = design("exp", length=10**12, n_eff=1e12 * math.exp(-1), lengths=())
    assert found.value == pytest.approx(1, rel=1e-6)  # annealed
    assert by_eval(design("relu2", length=10**12, n_eff=8, lengths=()), 10**12) == pytest.approx(8)


def test_the_floor_of_signed_linear_attention():
    floor = float(exact("identity", length=4096, beta=0, gamma=1).value)
    assert floor == pytest.approx(2 / math.pi * 4096, rel=1e-3)
    with pytest.raises(Impossible, match=r"2607\.958") as caught:
        design("identity", length=4096, n_eff=8)
    assert caught.value.argument == "n_eff"
    assert caught.value.reach.low == pytest.approx(floor, rel=1e-9)
    assert isinstance(caught.value, InputError)
    with pytest.raises(Impossible):
        design("identity", length=4096, n_eff=floor * (1 - 1e-7))
    near, far = design("identity", length=4096, n_eff=floor * (1 + 1e-6), lengths=()), 0.05
    assert -far < near.value < 0 < near.also[0] < far


@pytest.mark.parametrize(
    ("kernel", "wanted", "options", "match"),
    [
        ("exp", 4096, {}, r"to 4095\.996 for gamma from 0.001 to 100"),
        ("exp", 1, {}, "from 1.059738"),
        ("relu2", 4096, {}, r"to 4095\.9"),
        ("relu2", 8, {"beta": 1.0}, r"from 684\.\d+ to 4095"),
        ("relu2", 700, {"beta": -1.0}, r"to 683\.\d+ for gamma"),
        ("identity", 3000, {"beta": 0.0}, "for gamma from 0.001 to 1e\\+03"),
        ("decayed", 1, {}, "for decay from 2.06e-09 to 1"),
    ],
)
def test_impossible(kernel, wanted, options, match):
    with pytest.raises(Impossible, match=match):
        design(kernel, length=4096, n_eff=wanted, **options)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"n_eff": 4097}, "n_eff = 4097: .* at most 4096"),
        ({"n_eff": 0.5}, "n_eff = 0.5: .* at least 1"),
        ({"n_eff": "many"}, "n_eff = many: give a number"),
        ({"n_eff": [8, 9]}, "n_eff"),
        ({"length": 1, "n_eff": 1}, "length = 1"),
        ({"length": 2.5}, "length = 2.5"),
        ({"length": 10**13}, "length"),
        ({"length": [64, 128]}, "length"),
        ({"lengths": (64, 0)}, "length = 0"),
        ({"gamma": -1.0}, "gamma = -1"),
        ({"gamma": [1.0, 2.0]}, "gamma"),
        ({"decay": 0.5}, "decay = 0.5: exp does not take it"),
        ({"kernel": "relu2", "beta": -1.0, "gamma": 1.0}, "leave one out"),
        ({"kernel": "nonnegative"}, r"kernel = nonnegative.*features"),
        ({"kernel": "sparsemax"}, "kernel = sparsemax"),
    ],
)
def test_bad_input(arguments, match):
    with pytest.raises(InputError, match=match) as caught:
        design(**{"kernel": "exp", "length": 4096, "n_eff": 8, **arguments})
    assert not isinstance(caught.value, Impossible)


@pytest.mark.parametrize("length", [2, 64, 4096, 10**6])
def test_decay_of_all_tokens_is_next_to_none(length):
    found = design("decayed", length=length, n_eff=length)
    assert 1 in found.also
    assert found.n_eff == pytest.approx(length, rel=1e-10)


def test_where_only_some_lengths_can():
    found = design("identity", length=4096, n_eff=3000)
    assert [row.value for row in found.requirements] == [None] * len(LENGTHS)
    text = found.text()
    assert "256  impossible: n_eff ≤ 256" in text
    assert "16384  impossible: n_eff ≥ 10430.7" in text


def test_what_is_printed():
    found = design("relu2", length=4096, n_eff=1.5, lengths=(64,))
    assert found.p_nonzero < 0.9995
    assert f"only {found.p_nonzero:.4g} of the rows" in found.text()
    summary = json.loads(json.dumps(json_ready(found.summary()), allow_nan=False))
    assert summary["value"] == found.value
    assert summary["requirements"][0]["length"] == 64
    assert summary["reach"]["low"] == pytest.approx(1, rel=1e-3)
    scaled = design("exp", length=4096, n_eff=8, gamma=2.0, lengths=())
    assert scaled.parameter == "scale"
    assert scaled.row == Row("exp", gamma=2.0, steps=(ScalableSoftmax(scaled.value),))
    assert "needs scale = 0.25629798" in scaled.text()


def with_step(step, **parameters):
    return Row("exp", **({"gamma": 2.0} | parameters), steps=(step,))


ROWS = [
    ("slope", with_step(Alibi(7.0)), {"n_eff": 8}, lambda x: with_step(Alibi(x))),
    ("decay", with_step(Decay(0.1)), {"n_eff": 8}, lambda x: with_step(Decay(x))),
    pytest.param("gamma", with_step(Alibi(0.01)), {"n_eff": 8},
                 lambda x: with_step(Alibi(0.01), gamma=x), marks=pytest.mark.thorough),
    pytest.param("scale", with_step(ScalableSoftmax(1.0, 0.5), gamma=0.5), {"n_eff": 8},
                 lambda x: with_step(ScalableSoftmax(x, 0.5), gamma=0.5),
                 marks=pytest.mark.thorough),
    ("logit", with_step(SinkLogit()), {"sink_mass": 0.3}, lambda x: with_step(SinkLogit(x))),
    ("beta", Row("relu2", beta=9, gamma=2.0), {"S": 0.3},
     lambda x: Row("relu2", beta=x, gamma=2.0)),
    ("gamma", Row("exp", gamma=9), {"n_eff": 20}, lambda x: Row("exp", gamma=x)),
    ("decay", Row("decayed", decay=0.1), {"n_eff": 20}, lambda x: Row("decayed", decay=x)),
]  # fmt: skip


@pytest.mark.parametrize(("free", "row", "wanted", "at"), ROWS)
def test_any_number_of_a_row_can_be_free(free, row, wanted, at):
    ((of, value),) = wanted.items()
    found = design(row, length=300, free=free, **wanted)
    assert (found.parameter, found.quantity, found.also) == (free, of, ())
    law = exact(at(found.value), length=300, of=of)
    assert float(law.value) == pytest.approx(value, rel=1e-9)
    assert found.check == pytest.approx(value, rel=1e-9)
    assert found.row == at(found.value)
    off = exact(at(found.value * 0.99), length=300, of=of)
    assert float(off.value) != pytest.approx(value, rel=1e-6)
    summary = json.loads(json.dumps(json_ready(found.summary()), allow_nan=False))
    assert summary[of] == found.check
    assert summary["steps"] == found.row.described()["steps"]
    assert f"{of} = {value}" in found.text()


def test_a_window_is_the_nearest_whole_number():
    found = design(with_step(Window(1)), length=4096, n_eff=8, free="window", lengths=(32, 64))
    sizes = np.arange(2, 200)
    off = [abs(np.log(exact(with_step(Window(int(m))), length=4096).value / 8)) for m in sizes]
    assert found.value == sizes[np.argmin(off)]
    assert found.check == exact(with_step(Window(int(found.value))), length=4096).value
    assert [row.value for row in found.requirements] == [None, found.value]
    assert "impossible: n_eff ≤" in found.text()


@pytest.mark.thorough
def test_the_slope_that_keeps_n_eff_is_that_of_the_law():
    """Of γ = 3 at 8192 tokens: factors 1.1517 and 1.4802 at 4 and 128 times the length."""
    wanted = float(exact("exp", length=8192, gamma=3.0).value)
    for ratio, factor in ((4, 1.1517), (128, 1.4802)):
        row = with_step(Temperature.mistral(8192), gamma=3.0)
        found = design(row, length=8192 * ratio + 1, n_eff=wanted, free="slope")
        assert 1 + found.value * math.log1p(ratio) == pytest.approx(factor, abs=2e-4)
    with pytest.raises(Impossible, match="slope from"):  # below the trained length it does nothing
        design(with_step(Temperature.llama4()), length=4096, n_eff=8, free="slope")


def test_the_trained_length_is_a_whole_number():
    found = design(with_step(LogLength(9)), length=4096, n_eff=30, free="trained")
    lengths = np.arange(found.value - 3, found.value + 4)
    off = [
        abs(np.log(exact(with_step(LogLength(int(m))), length=4096).value / 30)) for m in lengths
    ]
    assert np.argmin(off) == 3
    assert found.check == exact(with_step(LogLength(int(found.value))), length=4096).value


def test_a_logit_for_a_mass_is_that_of_sink_logit():
    row = Row("exp", gamma=2.0)
    found = design(row.then(SinkLogit(1.0)), length=64, sink_mass=0.25, free="logit")
    assert found.value == sink_logit(0.25, row, length=64)


def test_looks_are_told_as_they_are_taken():
    told = []
    row = Row("relu2", beta=0.0, gamma=1.0)
    design(row, length=16, n_eff=5, free="beta", progress=lambda *x: told.append(x))
    assert told[0] == (0, GRID_POINTS)
    assert [done for done, _ in told] == list(range(len(told)))


def test_all_solutions_are_named():
    """Rows of s² are flat at a large β of either sign."""
    kernel = score_kernel("square", s**2)
    found = design(Row(kernel, beta=0, gamma=1.0), length=64, n_eff=40, free="beta")
    (other,) = found.also
    assert found.value == pytest.approx(-other, rel=1e-6)
    for beta in (found.value, other):
        law = exact(Row(kernel, beta=beta, gamma=1.0), length=64)
        assert float(law.value) == pytest.approx(40, rel=1e-9)
    assert f"also     beta = {other:.12g}" in found.text()


@pytest.mark.parametrize(
    ("row", "arguments", "error", "match"),
    [
        (with_step(Window(4)), {"S": 0.9, "free": "window"}, Impossible,
         r"S = 0.9: impossible .* where it is from"),
        (with_step(SinkLogit()).then(Sink(9.0)), {"sink_mass": 0.1, "free": "logit"},
         Impossible, "for logit from"),
        ("exp", {"n_eff": 3, "free": "beta"}, Impossible, "for beta from"),
        (with_step(Alibi(0.5)), {"n_eff": 3, "free": "window"}, InputError, "0 steps Window"),
        (with_step(Alibi(0.5)).then(Alibi(1.0)), {"n_eff": 3, "free": "slope"}, InputError,
         "2 steps Alibi"),
        (with_step(Alibi(0.5)).then(FloorLog()), {"n_eff": 3, "free": "slope"}, InputError,
         "2 steps Alibi or FloorLog or Yarn"),
        (with_step(Alibi(0.5)), {"n_eff": 3, "free": "slop"}, InputError, "did you mean slope"),
        (with_step(Alibi(0.5)), {"n_eff": 3, "S": 0.5}, InputError, "one quantity"),
        (with_step(Alibi(0.5)), {}, InputError, "one quantity to aim at: S, n_eff"),
        (with_step(Alibi(0.5)), {"S": 1.5}, InputError, "S = 1.5: .* from 0.0441942 to 1"),
        (with_step(Alibi(0.5)), {"S": "few"}, InputError, "S = few"),
        (with_step(Alibi(0.5)), {"sink_mass": 0.5}, InputError, "no sink"),
        (with_step(Alibi(0.5)), {"n_eff": 3, "gamma": 2.0}, InputError, "row.replace"),
        ("decayed", {"S": 0.5, "free": "gamma"}, InputError, "decayed has no gamma"),
    ],
)  # fmt: skip
def test_what_a_row_cannot_have(row, arguments, error, match):
    with pytest.raises(error, match=match):
        design(row, length=512, **arguments)


def _sink_mass(logit: float, n: int, gamma: float) -> float:
    """E[sink mass] = ∫₀^∞ e^b e^(−te^b) (E e^(−te^(γε)))^n dt, by nested quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / weights.sum()

    def integrand(v):  # t = e^(v−b)
        phi = weights @ np.exp(-np.exp(v - logit + gamma * nodes))
        return np.exp(v - np.exp(v)) * phi**n

    return quad(integrand, -40, 5, limit=400, points=[0.0])[0]


def test_a_logit_thousands_from_that_of_the_mean_row_is_found():
    """At γ = 100 the largest of 1,000 weights is about e^320, and their mean is e^5007."""
    logit = sink_logit(0.5, "exp", length=1000, gamma=100)
    assert 300 < logit < 340
    row = Row("exp", gamma=100, steps=(SinkLogit(logit),))
    assert exact(row, length=1000, of="sink_mass").value == pytest.approx(0.5, rel=1e-10)


@pytest.mark.parametrize(
    ("n", "gamma", "logit", "mass"),
    [
        (100, 1.0, 3.0, 0.11004),
        (1000, 2.0, 8.0, 0.29300),
        (1000, 3.0, 8.0, 0.04396),
        (1000, 1.0, math.log(1000) + 0.5, 0.50021),
    ],
)
def test_sink_logit(n, gamma, logit, mass):
    """The printed masses back to their logits; another integral agrees; it grows like ln n."""
    found = design(sink_mass=mass, length=n, gamma=gamma, lengths=(10**4, 10**8))
    assert (found.parameter, found.quantity) == ("logit", "sink_mass")
    assert found.value == pytest.approx(logit, abs=2e-4)
    assert found.check == pytest.approx(mass, rel=1e-10)
    assert _sink_mass(found.value, n, gamma) == pytest.approx(mass, rel=1e-6)
    assert _sink_mass(found.value + 0.1, n, gamma) != pytest.approx(mass, rel=1e-2)
    near, far = (row.value for row in found.requirements)
    if gamma < 3 and far and near:  # annealed
        annealed = math.log(10**8) + gamma**2 / 2 + math.log(mass / (1 - mass))
        assert far - near == pytest.approx(4 * math.log(10), abs=0.05 * gamma**2)
        assert far == pytest.approx(annealed, abs=2e-3 * gamma**4)
    assert f"needs logit = {found.value:.12g}" in found.text()
    json.dumps(json_ready(found.summary()), allow_nan=False)


def test_a_sink_beside_sampled_rows_takes_the_wanted_mass():
    gamma = 1.0
    found = design(sink_mass=0.5, length=1000, gamma=gamma, lengths=())
    scores = gamma * np.random.default_rng(8).standard_normal((4000, 1000))
    total = np.logaddexp.reduce(scores, axis=1)

    def z(logit):
        share = 1 / (1 + np.exp(np.minimum(total - logit, 700)))
        return (share.mean() - 0.5) / share.std() * math.sqrt(len(share))

    assert abs(z(found.value)) < 4.5
    assert abs(z(found.value + 0.1 * gamma)) > 4.5


@pytest.mark.parametrize(
    ("mass", "gamma"),
    [
        *((1e-300, 1.0), (1e-20, 1.0), (1 - 1e-16, 1.0)),
        pytest.param(1e-30, 30, marks=pytest.mark.thorough),
    ],
)
def test_masses_next_to_nothing_and_next_to_all(mass, gamma):
    found = design(sink_mass=mass, length=1000, gamma=gamma, lengths=(10**6,))
    assert found.check == pytest.approx(mass, rel=1e-9)
    longer = found.requirements[0].value
    assert longer is not None
    assert longer > found.value
    if gamma == 1.0:  # Jensen, for the mass and for 1 − mass: E 1/Σ >= 1/E Σ
        assert found.value < math.log(mass) - math.log1p(-mass) + math.log(1000) + 0.5 + 1e-3


@pytest.mark.parametrize(
    ("change", "match"),
    [({"sink_mass": 0.0}, "mass"), ({"sink_mass": 1.0}, "mass"), ({"sink_mass": math.nan}, "mass"),
     ({"gamma": 0.0}, "gamma"), ({"length": 0.5}, "length"), ({"gamma": [1.0, 2.0]}, "gamma")],
)  # fmt: skip
def test_bad_sinks(change, match):
    with pytest.raises(InputError, match=match):
        design(**{"sink_mass": 0.5, "length": 64, "gamma": 1.0, "lengths": (), **change})


def count_laws(monkeypatch):
    """Return the list to which every exact law that a search asks for adds its lengths."""
    asked = []

    def counted(*arguments, **options):
        asked.append(np.ravel(options["length"]).tolist())
        return exact(*arguments, **options)

    monkeypatch.setattr(searching, "exact", counted)
    return asked


@pytest.mark.parametrize(
    ("row", "wanted", "most"),
    [
        # A bisection over the grid, of which looks are shared, and Brent's method in its cell.
        pytest.param("exp", {"of": "entropy", "value": 3.0}, 6 * 9 + 10, marks=pytest.mark.slow),
        # The grid; two searches at extremes; and the roots of one length.
        pytest.param(
            Row("sigmoid", beta=-6.0, gamma=1.0),
            {"n_eff": 98, "free": "gamma"},
            GRID_POINTS + 2 * 25 + 2 * 12,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_search_takes_few_exact_laws(row, wanted, most, monkeypatch):
    asked = count_laws(monkeypatch)
    found = design(row, length=1000, **wanted)
    assert len(found.requirements) == (5 if row == "exp" else 0)
    assert len(asked) <= most
    assert found.looks < 7 or GRID_POINTS <= found.looks <= GRID_POINTS + 2 * 25


WANTED = {
    "S": 0.3, "n_eff": 20, "entropy": 2.5, "participation": 0.2, "max_weight": 0.4, "gini": 0.5,
    "hoyer": 0.5, "top_k_mass:4": 0.6, "top_k_mass:40": 0.9,
}  # fmt: skip


def test_what_only_rises_or_falls_with_sharpness_does_so_in_every_row():
    scores = np.random.default_rng(5).normal(size=(200, 64))
    assert {name.partition(":")[0] for name in WANTED} == set(MONOTONE)

    def values(name: str, gamma: float) -> np.ndarray:
        quantity = quantities.named(name)
        p = np.exp(gamma * scores)
        p /= p.sum(-1, keepdims=True)
        row = RowSums(64, p.sum(-1), (p * p).sum(-1), 0.0, 0.0, weights=p, one=1.0)
        return np.asarray(quantity.of(row))

    for name in WANTED:
        rises = values(name, 1.3) > values(name, 1.0)
        assert (rises == rises[0]).all(), name
    # What does not in every row: the third largest weight alone, up and down.
    third = [np.sort(np.exp(g * scores) / np.exp(g * scores).sum(-1, keepdims=True))[:, -3]
             for g in (1.0, 1.3, 5.0)]  # fmt: skip
    assert ((third[1] > third[0]) & (third[2] < third[1])).any()


SEEK = ("n_eff",)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(x, marks=pytest.mark.thorough if x in SEEK else pytest.mark.slow)
        for x in WANTED
    ],
)
def test_one_root_is_what_a_search_finds(name, monkeypatch):
    ask = {"length": 64, "of": name, "value": WANTED[name], "lengths": ()}
    root = design("exp", **ask)
    assert root.looks < 7
    assert root.check == pytest.approx(WANTED[name], rel=1e-9)
    monkeypatch.setattr(searching, "MONOTONE", ())
    search = design("exp", **ask)
    assert GRID_POINTS / 2 < search.looks <= GRID_POINTS + 50  # the widest laws are refused
    assert search.value == pytest.approx(root.value, rel=1e-9)


@pytest.mark.thorough
def test_a_temperature_only_sharpens(monkeypatch):
    asked = count_laws(monkeypatch)
    row = Row("exp", gamma=3.0, steps=(Yarn(16.0),))
    ask = {"length": 131072, "free": "slope", "lengths": ()}
    found = design(row, n_eff=38.03, **ask)
    assert found.value == pytest.approx(0.0490439793662, rel=1e-10)
    assert len(asked) < 30
    start = found.reach.high  # at the least slope, where the search begins
    with pytest.raises(InputError, match="impossible"):
        design(row, n_eff=1.001 * start, **ask)


def test_beyond_a_law_that_is_resolved():
    with pytest.raises(InputError, match="for gamma from"):
        design("exp", length=4096, of="top_k_mass:8", value=1 - 1e-9, lengths=())


TURNING = [  # (row, length, free, wanted, how many values give it): n_eff turns in what is free
    (Row("sigmoid", beta=-3.0, gamma=1.0), 64, "gamma", 20.85, 2),
    (Row("abs(s - 1)", beta=0.0, gamma=0.01), 64, "beta", 50, 2),
]


@pytest.mark.slow
@pytest.mark.parametrize(("row", "length", "free", "wanted", "count"), TURNING)
def test_every_crossing_between_looks_is_found(row, length, free, wanted, count):
    found = design(row, length=length, n_eff=wanted, free=free)
    values = [found.value, *found.also]
    assert len(values) == count
    assert values == sorted(values)
    for value in values:
        law = exact(row.replace(**{free: value}), length=length)
        assert float(law.value) == pytest.approx(wanted, rel=1e-9)
    assert found.looks >= GRID_POINTS
    assert f"({found.looks} values tried)" in found.text()
    assert found.summary()["looks"] == found.looks


@pytest.mark.slow
def test_two_crossings_next_to_an_extreme_are_found():
    """Just above the least that n_eff reaches between two looks there are two, below it none."""
    ask: dict[str, Any] = {"kernel": Row("sigmoid", beta=-6.0, gamma=1.0), "free": "gamma"}
    with pytest.raises(Impossible, match=r"from 0.001 to 100 \(\d+ values tried") as caught:
        design(length=1000, n_eff=60, **ask)
    least = caught.value.reach.low
    found = design(length=1000, n_eff=least * (1 + 1e-4), **ask)
    (other,) = found.also
    assert found.value < other < 1.1 * found.value  # far nearer than two values of the grid


def test_of_and_value_are_another_quantity():
    found = design("exp", length=64, of="S", value=0.5, lengths=())
    assert (found.quantity, found.wanted) == ("S", 0.5)
    assert found == design("exp", length=64, S=0.5, lengths=())
    assert design("exp", length=64, of="n_eff", value=8, lengths=()).value == pytest.approx(
        design("exp", length=64, n_eff=8, lengths=()).value, rel=1e-12
    )
    for asked, match in (
        ({"of": "S"}, "value is missing: give of and value together"),
        ({"value": 3}, "of is missing: give of and value together"),
        ({"of": "S", "value": 0.5, "n_eff": 3}, "give one quantity to aim at"),
        ({"of": "n_eff", "value": 5, "n_eff": 3}, "give one quantity to aim at"),
        ({"of": "T", "value": 0.5}, "T"),
    ):
        with pytest.raises(InputError, match=match):
            design("exp", length=64, **asked)
