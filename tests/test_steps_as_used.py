"""Steps as models use them: temperatures, soft caps, chunks and kept tokens, and their order."""

import numpy as np
import pytest

import sparsity
from sparsity import (
    Alibi,
    Chunk,
    InputError,
    Row,
    ScaleInvariant,
    Sink,
    SoftCap,
    Temperature,
    Window,
    exact,
)
from sparsity.rows import steps
from sparsity.rows.steps.temperature import RULES

# n_eff of γ = 3 under each rule, by an integral written apart from this package.
LENGTHS = (2**13, 2**15, 2**17, 2**20, 10**7)
NONE = (38.03, 81.20, 186.53, 744.97, 3984.0)
LLAMA4 = (28.26, 36.52, 39.21, 37.15, 32.24)
LOG_N = (38.03, 37.66, 35.38, 30.33, 24.70)


def n_eff(step, length, gamma=3.0):
    row = Row("exp", gamma=gamma, steps=() if step is None else (step,))
    return float(exact(row, length=length))


@pytest.mark.parametrize(
    ("step", "values"),
    [(None, NONE), (Temperature.llama4(), LLAMA4), (Temperature.qwen(8192), LOG_N)],
    ids=["none", "llama4", "log-n"],
)
def test_n_eff_under_each_rule(step, values):
    found = [n_eff(step, n) for n in LENGTHS]
    assert found == pytest.approx(values, rel=1e-3)


def test_yarn_squares_its_factor():
    assert n_eff(Temperature.yarn(16.0), 16 * 8192) == pytest.approx(12.6254, rel=1e-4)
    assert n_eff(Temperature.yarn(128.0), 128 * 8192) == pytest.approx(6.6624, rel=1e-4)
    assert sparsity.LogLength(16, 0.5).factor(256) == pytest.approx(2**0.5, rel=1e-15)
    assert sparsity.LogLength(16, 0.5).factor(4) == 1
    assert Temperature.longrope(32.0, 4096).factor(7) == pytest.approx(17 / 12, rel=1e-15)
    assert Temperature.yarn(4.0).factor(7) == pytest.approx((1 + 0.1 * np.log(4)) ** 2, rel=1e-15)


def test_the_floor_makes_a_sawtooth():
    assert n_eff(Temperature.llama4(), 8191) == n_eff(None, 8191)
    assert n_eff(Temperature.llama4(), 8192) == pytest.approx(28.26, rel=1e-3)
    assert n_eff(Temperature.mistral(8192), 8192) == n_eff(None, 8192)  # its position counts from 0
    assert n_eff(Temperature.mistral(8192), 8193) == pytest.approx(28.26, rel=1e-3)


def test_every_rule_can_be_typed():
    for rule in RULES:
        step = steps.parse(f"temperature:{rule.replace('_', '-')}")
        assert step == getattr(Temperature, rule)()
        assert isinstance(step, Temperature)
    for text in ("temperature:yarn,16", "temperature:yarn:16", "yarn:16"):
        assert steps.parse(text) == Temperature.yarn(16)
    assert steps.parse("temperature:longrope,32,4096") == sparsity.LongRope(32, 4096)
    for text, match in (
        ("temperature:llama5", "the rules are llama4"),
        ("temperature:llama4,3", "llama4 takes no numbers"),
        ("temperature:", "the rules are"),
        ("temperature:yarn,x", "write temperature:RULE"),
        ("temperature:yarn,0.5", ">= 1"),
    ):
        with pytest.raises(InputError, match=match):
            steps.parse(text)


def test_soft_cap_printed_value():
    row = Row("exp", gamma=16.0, steps=(SoftCap(50),))
    assert float(exact(row, length=4096)) == pytest.approx(3.15358, rel=1e-5)


ORDERS = (  # steps, and the score that they make of s = βγ-score at the distance t of n tokens
    ((Temperature.ssmax(1.0), SoftCap(3.0)), lambda s, t, n: 3 * np.tanh(np.log(n) * s / 3)),
    ((Alibi(0.2), SoftCap(3.0)), lambda s, t, n: 3 * np.tanh((s - 0.2 * t) / 3)),
    ((Temperature.ssmax(1.0), Alibi(0.2)), lambda s, t, n: np.log(n) * s - 0.2 * t),
    ((Alibi(0.2), Temperature.ssmax(1.0)), lambda s, t, n: np.log(n) * (s - 0.2 * t)),
    ((ScaleInvariant(2.0),), lambda s, t, n: scale_invariant(s, t / 2 + 1)),
)  # fmt: skip


def scale_invariant(s, x):
    return np.sqrt(2 * np.log(x) + 1) * s - 2 * np.log(x)


@pytest.mark.parametrize("number", range(len(ORDERS)))
def test_order_of_steps_by_sampled_rows(number):
    """The mean over rows by NumPy, from the score written out; a wrong order is rejected."""
    given, score = ORDERS[number]
    n, rows = 9, 50_000
    s = 0.4 + 1.5 * np.random.default_rng(7).standard_normal((rows, n))
    a = 1 / (1 + np.exp(-score(s, np.arange(n)[::-1], n)))
    values = a.sum(1) ** 2 / (a * a).sum(1)
    mean, error = values.mean(), values.std() / np.sqrt(rows)
    own = float(exact(Row("sigmoid", beta=0.4, gamma=1.5, steps=given), length=n))
    assert abs(mean - own) < 4.5 * error
    if len(given) == 2 and not isinstance(given[1], SoftCap):
        other = Row("sigmoid", beta=0.4, gamma=1.5, steps=given[::-1])
        assert abs(mean - float(exact(other, length=n))) > 10 * error


def test_nothing_changes_scores_after_a_cap():
    for step in (
        Temperature.llama4(),
        Alibi(0.1),
        Sink(1.0),
        ScaleInvariant(),
        sparsity.LengthBias(),
        sparsity.Needle(4.0, 0.0, 5),  # "a row of 2 tokens has distances 0 to 1"
    ):
        with pytest.raises(InputError, match="after the soft cap"):
            Row("exp", gamma=1.0, steps=(SoftCap(5.0), step))
        with pytest.raises(InputError, match="after the soft cap"):
            Row("exp", gamma=1.0, steps=(SoftCap(5.0),)).then(step)
    for step in (Window(4), sparsity.Decay(0.9), sparsity.SinkLogit(1.0), Chunk(3)):
        assert Row("exp", gamma=1.0, steps=(SoftCap(5.0), step)).steps[1] == step
    with pytest.raises(InputError, match="one soft cap"):
        Row("exp", gamma=1.0, steps=(SoftCap(5.0), SoftCap(4.0)))


@pytest.mark.parametrize("cap", [0.05, 1e-20])
def test_a_small_cap_is_no_wide_range(cap):
    """An interval across 0 took tanh(s/c) for unbounded, and the law was refused."""
    law = exact(Row("exp", gamma=1.0, steps=(SoftCap(cap),)), length=16)
    a = np.exp(cap * np.tanh(np.random.default_rng(2).standard_normal((100_000, 16)) / cap))
    rows = a.sum(1) ** 2 / (a * a).sum(1)
    assert abs(float(law) - rows.mean()) < 4.5 * rows.std() / np.sqrt(len(a)) + 1e-11


def test_a_capped_row_is_that_of_the_typed_kernel():
    row = Row("exp", beta=0.0, gamma=2.0, steps=(SoftCap(5.0), Window(64)))
    again = eval(repr(row), vars(sparsity) | {"Row": Row, "SoftCap": SoftCap, "Window": Window})
    assert again == row == Row(row.kernel, steps=row.steps, **row.params)
    assert row.described()["kernel"] == "exp"
    typed = exact("exp(5*tanh(s/5))", beta=0.0, gamma=2.0, length=64)
    assert float(exact(row, length=100)) == pytest.approx(float(typed), rel=1e-12)
    for gamma in (0.5, 3.0):
        assert row.replace(gamma=gamma).steps == row.steps


def test_what_windows_leave_in_sight():
    for step, n, seen in (
        (Window(3), 7, [0, 0, 0, 0, 1, 1, 1]),
        (Window(3, keep=2), 7, [1, 1, 0, 0, 1, 1, 1]),
        (Window.symmetric(1), 7, [0, 0, 0, 0, 1, 1, 1]),
        (Chunk(4), 8, [0, 0, 0, 0, 1, 1, 1, 1]),
        (Chunk(4), 9, [0, 0, 0, 0, 0, 0, 0, 0, 1]),
    ):
        _, _, w = Row("exp", gamma=1.0, steps=(step,)).positions(n)
        assert w.tolist() == seen, step
    assert float(exact(Row("exp", gamma=1.0, steps=(Chunk(8192),)), length=8193)) == 1.0


@pytest.mark.thorough
def test_a_gate_scales_what_is_read_out_wherever_it_stands():
    """Σ|a| and Σa² of the weights as they are; a sink logit stays out of both."""
    gate, sink = sparsity.Gate(0.3), sparsity.SinkLogit(3.0)
    plain = Row("exp", gamma=0.4, steps=(Temperature.ssmax(0.4), Window(12), sink))
    mass, squares = (float(exact(plain, length=32, of=of)) for of in ("abs_sum", "square_sum"))
    spread = 0.4 * np.log(32) * 0.4  # 12 log-normal weights
    assert mass == pytest.approx(12 * np.exp(spread**2 / 2), rel=1e-12)
    assert squares == pytest.approx(12 * np.exp(2 * spread**2), rel=1e-12)
    laws = ("S", "n_eff", "participation", "entropy", "hoyer", "sink_mass")
    for place in (0, 3):
        steps_ = (*plain.steps[:place], gate, *plain.steps[place:])
        row = Row("exp", gamma=0.4, steps=steps_)
        for of, wanted in (("abs_sum", 0.3 * mass), ("square_sum", 0.09 * squares)):
            drawn = sparsity.estimate(row, length=32, of=of, rel_error=2e-3, seed=place)
            assert abs(drawn.value - wanted) < 4.5 * drawn.stderr
            assert abs(drawn.value - wanted / 0.3) > 10 * drawn.stderr
            assert float(exact(row, length=32, of=of)) == pytest.approx(wanted, rel=1e-14)
        for quantity in laws:  # of shares: the gate changes none
            own = exact(row, length=32, of=quantity)
            assert float(own) == float(exact(plain, length=32, of=quantity))
    twice = Row("exp", gamma=1.2, steps=(gate, sparsity.Gate(0.5)))
    assert twice.tokens(8).gate == 0.15
    assert Row("exp", gamma=1.0, steps=(SoftCap(5.0), gate)).steps[1] == gate
    assert steps.parse("gate:0.25") == sparsity.Gate(0.25)


def test_qk_norm_is_the_law_of_scores_whatever_its_place():
    """It comes first; what acts on scores keeps its own order behind it."""
    n, rows, gamma = 9, 100_000, 1.5
    z = np.random.default_rng(4).standard_normal((rows, n, 6))
    x = gamma * 6**0.5 * z[..., 0] / np.linalg.norm(z, axis=-1)
    law = sparsity.QKNorm(6)
    for given, score in (
        ((law, Temperature.ssmax(1.0), SoftCap(8.0)), 8 * np.tanh(np.log(n) * x / 8)),
        ((Temperature.ssmax(1.0), law, SoftCap(8.0)), 8 * np.tanh(np.log(n) * x / 8)),
        ((Alibi(0.2), law, Temperature.ssmax(1.0)), np.log(n) * (x - 0.2 * np.arange(n)[::-1])),
        ((Temperature.ssmax(1.0), Alibi(0.2), law), np.log(n) * x - 0.2 * np.arange(n)[::-1]),
    ):
        a = np.exp(score)
        values = a.sum(1) ** 2 / (a * a).sum(1)
        mean, error = values.mean(), values.std() / np.sqrt(rows)
        own = float(exact(Row("exp", gamma=gamma, steps=given), length=n))
        gaussian = tuple(step for step in given if step != law)
        normal = float(exact(Row("exp", gamma=gamma, steps=gaussian), length=n))
        assert abs(mean - own) < 4.5 * error
        assert abs(mean - normal) > 10 * error


def test_steps_refuse_bad_numbers():
    for make, match in (
        (lambda: SoftCap(0.0), "cap = 0"),
        (lambda: sparsity.Gate(1.5), "value = 1.5"),
        (lambda: Chunk(0), "size = 0"),
        (lambda: Window(3, keep=-1), "keep = -1"),
        (lambda: sparsity.FloorLog(0.0), "slope = 0"),
        (lambda: sparsity.LogLength(1), "trained = 1"),
        (lambda: sparsity.LogLength(9, 0.0), "power = 0"),
        (lambda: sparsity.LogLength(9, 1e3), "power = 1000"),
        (lambda: sparsity.Yarn(0.5), "extension = 0.5"),
        (lambda: sparsity.LongRope(32.0, 1), "trained = 1"),
        (lambda: sparsity.ScalableSoftmax(0.4, -1.0), "bias = -1"),
        (lambda: Row("sparsemax", gamma=1.0, steps=(SoftCap(3.0),)), "steps"),
    ):
        with pytest.raises(InputError, match=match):
            make()


def test_each_sink_is_a_token_of_its_own():
    """The k-th sink is the k-th token, behind a window too: rows drawn without the package."""
    sinks, n = np.array([(2.0, 1.0), (1.0, 0.0), (0.5, 0.5)]), 12
    row = Row("exp", gamma=1.5, steps=(Window(6), *(Sink(*sink) for sink in sinks)))
    a = np.random.default_rng(56).standard_normal((400_000, n))
    a = np.exp(np.append(sinks[:, 0] + sinks[:, 1] * a[:, :3], 1.5 * a[:, -6:], 1))
    share = a[:, :3].sum(1) / a.sum(1)
    law = exact(row, length=n, of="sink_mass")
    assert abs(share.mean() - float(law.value)) < 4.8 * share.std() / len(share) ** 0.5
    drawn = sparsity.estimate(row, length=n, of="sink_mass", rel_error=1e-2)
    assert abs(drawn.value - float(law.value)) < 4.8 * drawn.stderr
    assert exact(row, length=3, of="sink_mass").value == pytest.approx(1, rel=1e-12)
    with pytest.raises(InputError, match="too short for 3 sinks"):
        exact(row, length=2)
