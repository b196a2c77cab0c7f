"""RoPE's angles for long contexts, against an independent computation of each published rule."""

import mpmath
import numpy as np
import pytest
from rope_reference import dynamic, linear, llama3, ntk, yarn

from sparsity import (
    Coca,
    Decay,
    DynamicNtkScaling,
    InputError,
    LinearScaling,
    Llama3Scaling,
    NtkScaling,
    Rope,
    Row,
    Yarn,
    YarnScaling,
    estimate,
    exact,
)
from sparsity.sampling import Sampling
from sparsity.sampling.row_sources import rotary_scores, rotary_tokens

DOCUMENTED = {  # dimension of a head, base, length of the row, the rule and its reference
    "vicuna 16k": (128, 1e4, 16384, LinearScaling(4.0), linear, (4,)),
    "code NTK": (128, 1e4, 16384, NtkScaling(4.0), ntk, (4,)),
    "internlm2, dynamic": (128, 1e6, 65536, DynamicNtkScaling(2.0, 32768), dynamic, (2, 32768)),
    "qwen2.5, yarn": (128, 1e6, 131072, YarnScaling(4.0, 32768), yarn, (4, 32768)),
    "a ramp from before the first plane": (64, 1e4, 256, YarnScaling(4.0, 64), yarn, (4, 64)),
    "deepseek-v3, yarn": (64, 1e4, 163840, YarnScaling(40.0, 4096), yarn, (40, 4096)),
    "llama 3.1": (128, 5e5, 131072, Llama3Scaling(8.0, 8192), llama3, (8, 8192)),
    "llama 3.2 1B": (64, 5e5, 131072, Llama3Scaling(32.0, 8192), llama3, (32, 8192)),
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_angles_of_documented_configurations(name):
    dim, base, length, rule, reference, numbers = DOCUMENTED[name]
    with mpmath.workdps(40):
        wanted = np.array([float(x) for x in reference(dim, base, length, *numbers)])
    found = rule.angles(dim, base, length)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    off = plain_float(dim, base)
    assert np.max(np.abs(found / off - 1)) > 0.1  # the rule does something, and the test would see
    planted = rule.angles(dim, base * 1.0001, length)
    assert np.max(np.abs(planted / wanted - 1)) > 1e-6


def plain_float(dim, base):
    return base ** (-2 * np.arange(dim // 2) / dim)


def test_a_ramp_of_no_width_is_a_step():
    """Llama 4 has low = high, Kimi K2 fast = slow: a plane stays, or slows by the whole factor."""
    plain = LinearScaling(1.0).angles(64, 1e4, 1)
    turns = 4096 * plain / (2 * np.pi)
    for rule in (Llama3Scaling(8.0, 4096, 2.0, 2.0), YarnScaling(8.0, 4096, 2.0, 2.0, False)):
        ratio = plain / rule.angles(64, 1e4, 1)
        np.testing.assert_allclose(ratio, np.where(turns > 2, 1.0, 8.0), rtol=1e-12)


def test_dynamic_scaling_begins_beyond_the_trained_length():
    rule = DynamicNtkScaling(4.0, 512)
    for length in (1, 511, 512):
        np.testing.assert_array_equal(rule.angles(16, 1e4, length), plain_float(16, 1e4))
    assert rule.angles(16, 1e4, 1024)[-1] < plain_float(16, 1e4)[-1]


Q, MU = np.array([1.0, 0.5, -0.3, 0.2, 0.7, -0.4, 0.6, 0.1]), np.linspace(-0.5, 0.6, 8)
RULES = (
    *(None, LinearScaling(2.0), NtkScaling(2.0), DynamicNtkScaling(2.0, 4)),
    *(YarnScaling(2.0, 64, 8, 1), Llama3Scaling(4.0, 64)),
)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("turned", [None, 4])
def test_scores_of_rows_from_rotated_vectors(rule, turned):
    """β_m = q·R_m μ with every plane turned by hand."""
    n = 12
    step = Rope(Q, MU, 0.3, scaling=rule, turned=turned)
    beta, gamma, _ = Row("exp", steps=(step,)).positions(n)
    dim = 8 if turned is None else turned
    theta = plain_float(dim, 1e4) if rule is None else rule.angles(dim, 1e4, n)
    wanted = []
    for m in range(n - 1, -1, -1):
        turning = np.array(MU)
        for i, angle in enumerate(theta):
            a, b = MU[2 * i], MU[2 * i + 1]
            c, s = np.cos(-m * angle), np.sin(-m * angle)
            turning[2 * i : 2 * i + 2] = (c * a - s * b, s * a + c * b)
        wanted.append(Q @ turning)
    np.testing.assert_allclose(beta, wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gamma, 0.3 * np.linalg.norm(Q), rtol=1e-14)


DYNAMIC, YARN = DynamicNtkScaling(4.0, 4), YarnScaling(4.0, 64, 8, 1)


def test_one_program_draws_rows_of_all_angles():
    sources = {rotary_tokens(Rope(Q, MU, 0.3, scaling=x), range(12), 12)[0] for x in (None, YARN)}
    assert len(sources) == 1
    assert rotary_tokens(Rope(Q, MU, 0.3, turned=4), range(12), 12)[0] not in sources


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "turned", "rule"),
    [("rope", 4, YARN), ("slack", 4, DYNAMIC)],
    ids=str,
)
def test_whole_rows_agree_with_the_exact_law(kind, turned, rule):
    """Sampled from whole rotated keys, which share the angles alone."""
    n, options = 12, {"scaling": rule, "turned": turned}
    step = {
        "rope": lambda: Rope(Q, MU, 0.3, **options),
        "slack": lambda: Coca(Q, 0.8, 0.1, slack_at=20, **options),
    }[kind]()
    row = Row("exp", steps=(step,))
    law = exact(row, length=n)
    drawn = estimate(row, length=n, of="n_eff", rel_error=2e-3, seed=3)
    assert abs(drawn.value - float(law)) < 4.5 * drawn.stderr
    several = exact(row, length=[4, n])
    assert float(several.value[1]) == pytest.approx(float(law), rel=1e-10)


@pytest.mark.parametrize(
    "step", [Rope(Q, MU, 0.3, scaling=DYNAMIC), Coca(Q, 0.8, 0.1, scaling=DYNAMIC)]
)
def test_a_part_of_the_tokens_does_not_set_a_dynamic_scale(step):
    """Near tokens alone, and without the length of their row, had other angles than in the row."""
    near = np.arange(3)
    for ask in (step.beta, step.gamma) if isinstance(step, Coca) else (step.beta,):
        with pytest.raises(InputError, match="length is missing"):
            ask(near)
        np.testing.assert_allclose(ask(near, 40), ask(np.arange(40), 40)[:3], rtol=1e-13)
        assert not np.allclose(ask(near, 40), ask(near, 3))
    with pytest.raises(InputError, match="length is missing"):
        rotary_scores(step, near, Sampling(seed=1))


@pytest.mark.parametrize("before", [Yarn(16.0), Decay(1.0)])
def test_what_multiplied_the_scores_before_multiplies_them(before):
    """A temperature that stands before RoPE was without effect."""
    rope = Rope(Q, MU, 0.3)
    laws = [float(exact(Row("exp", steps=steps), length=12)) for steps in ((before, rope), (rope,))]
    after = float(exact(Row("exp", gamma=1.5, steps=(rope, before)), length=12))  # γ is RoPE's
    assert laws[0] == pytest.approx(after, rel=1e-12)
    assert (abs(laws[0] / laws[1] - 1) < 1e-12) == (before == Decay(1.0))


def test_errors():
    for make, match in (
        (lambda: LinearScaling(0.5), "factor = 0.5"),
        (lambda: DynamicNtkScaling(2.0, 0), "trained = 0"),
        (lambda: YarnScaling(2.0, 64, 1.0, 2.0), "fast = 1"),
        (lambda: Llama3Scaling(2.0, 64, 4.0, 1.0), "high = 1"),
        (lambda: Rope(Q, MU, 0.3, scaling="yarn"), "scaling = yarn"),
        (lambda: Rope(Q, MU, 0.3, turned=3), "turned = 3"),
        (lambda: Rope(Q, MU, 0.3, turned=10), "turned = 10"),
    ):
        with pytest.raises(InputError, match=match):
            make()
