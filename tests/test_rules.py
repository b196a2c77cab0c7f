"""Claims on rules for long contexts: a planted wrong world changes each verdict."""

import functools
import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import log_ndtr

import sparsity
from sparsity import InputError, LengthBias, Needle, Row, ScalableSoftmax, ScaleInvariant, limit
from sparsity.claims_ledger.judging import Routes
from sparsity.claims_ledger.rules import CLAIMS, needle, routers, temperature
from sparsity.sampling.first_passage import sample_capacity

CLAIM = {claim.key: claim for claim in CLAIMS}
HONEST = Routes()


def at_one_length(kernel, length, **parameters):
    """A world in which n_eff does not grow with the row."""
    return HONEST.n_eff(kernel, 8192, **parameters)


def without_steps(kernel, length, **parameters):
    """A world in which temperatures do nothing, and rows do not grow."""
    bare = Row(kernel.kernel, **kernel.params) if isinstance(kernel, Row) else kernel
    return HONEST.n_eff(bare, 8192, **parameters)


def no_temperature(kernel, length, **parameters):
    bare = Row(kernel.kernel, **kernel.params) if isinstance(kernel, Row) else kernel
    return HONEST.n_eff(bare, length, **parameters)


def of_size_alone(kernel, length, of, **parameters):
    """A world in which likeness within a block does nothing, and size the wrong thing."""
    size = int(kernel.rpartition(",")[2])
    return np.float64(0.1 + 0.001 * size)


def any_proxy(kernel, length, of, **parameters):
    """A world in which a proxy reads the best keys, whatever its correlation."""
    return HONEST.mean("exp", 1280, "top_k_mass:256", gamma=parameters["gamma"])


WORLDS = {
    "flashmoba-snr": (replace(HONEST, mean=of_size_alone), "refuted"),
    "halving-blocks": (replace(HONEST, mean=of_size_alone), "refuted"),
    "past-attention": (replace(HONEST, mean=any_proxy), "confirmed"),
    "why-a-tenth": (replace(HONEST, n_eff=at_one_length), "refuted"),
    "yarn-square": (replace(HONEST, n_eff=without_steps), "confirmed"),
    "unit-scaling": (
        replace(HONEST, mean=lambda k, n, of, **p: 4 * HONEST.mean(k, n, of, **p)), "refuted"
    ),
    "ssmax-start": (replace(HONEST, n_eff=no_temperature), "refuted"),
}  # fmt: skip


@pytest.mark.parametrize("key", WORLDS)
def test_a_planted_world_changes_the_verdict(key):
    routes, changed = WORLDS[key]
    assert CLAIM[key].record(routes)["verdict"] == changed != CLAIM[key].record()["verdict"]


def test_planted_steps_change_the_verdict(monkeypatch):
    found = {}
    right = ScaleInvariant.__call__
    with monkeypatch.context() as patch:  # without the bias 1 − c²

        def unbiased(self, tokens, length):
            after = right(self, tokens, length)
            return replace(after, beta=np.sqrt(after.gamma) * 0)

        patch.setattr(ScaleInvariant, "__call__", unbiased)
        found["scale-invariant"] = CLAIM["scale-invariant"].record()["verdict"]
    with monkeypatch.context() as patch:  # −½ ln n in place of −ln n

        def half(self, tokens, length):
            return replace(tokens, beta=tokens.beta - 0.5 * math.log(length))

        patch.setattr(LengthBias, "__call__", half)
        found["sigmoid-bias"] = CLAIM["sigmoid-bias"].record()["verdict"]
    assert found == dict.fromkeys(found, "refuted")
    assert len(found) + len(WORLDS) + len(CAPACITIES) == len(CLAIMS)


def _half_as_wide(kernel, *, dim, query=1.0):
    """A world in which the others' scores do not have the query's length."""
    right = limit.capacity.needle_capacity(kernel, dim=dim, query=query)
    more = math.log(query + 0.5)
    return right._replace(value=right.value * math.exp(more), log_value=right.log_value + more)


CAPACITIES = {  # claim -> what is planted, and the verdict that follows
    "needle-snr": ("metric", SimpleNamespace(n_eff=lambda a: sparsity.n_eff(a) + 1), "refuted"),
    "linear-capacity": ("needle_capacity", _half_as_wide, "refuted"),
    "softmax-capacity": ("needle_capacity", _half_as_wide, "refuted"),
    "power-capacity": ("needle_capacity", _half_as_wide, "refuted"),
}


@pytest.mark.parametrize("key", CAPACITIES)
def test_a_planted_capacity_changes_the_verdict(monkeypatch, key):
    name, planted, changed = CAPACITIES[key]
    drawn = functools.cache(sample_capacity)  # the same rows in both worlds
    monkeypatch.setattr(needle, "sample_capacity", drawn)
    honest = CLAIM[key].record()["verdict"]
    monkeypatch.setattr(needle, name, planted)
    assert CLAIM[key].record()["verdict"] == changed != honest


def test_capacities_by_their_forms():
    """d, 2d^p/(2p − 1)!! of max(s, 0)^p, e^(2t√d − 2t²), and what the drawn rows say."""
    for d, t in itertools.product((4, 9, 64), (0.5, 1.0, 2.0)):
        wanted = {"identity": d, "relu": 2 * d, "relu2": 2 * d**2 / 3, "relu3": 2 * d**3 / 15,
                  "exp": math.exp(2 * t * math.sqrt(d) - 2 * t * t)}  # fmt: skip
        for kernel, n in wanted.items():
            found = sparsity.needle_capacity(kernel, dim=d, query=t)
            assert found.value == pytest.approx(n, rel=1e-12)
            assert found.error_bound < 1e-12
    drawn = sample_capacity("exp", dim=16, query=0.5, rows=4096, seed=4)
    row = Row("exp", gamma=0.5, steps=(Needle(2.0),))
    for n, above in ((int(drawn.ci95[0]) - 1, True), (int(drawn.ci95[1]) + 3, False)):
        chance = sparsity.exact(row, length=n + 1, of="needle_snr_above:1").value
        assert (float(chance) > 0.5) == above
    for bad in ({"dim": 0}, {"dim": 4, "query": 0}, {"dim": 4, "query": math.nan}):
        with pytest.raises(InputError):
            sparsity.needle_capacity("exp", **bad)
    with pytest.raises(InputError, match="depend on the whole row"):
        sparsity.needle_capacity("sparsemax", dim=4)


def assert_rows_of_numpy_hold_as_many(name, dim, query):
    """Draw whole rows with the definition: half of those of the sampled n have SNR > 1."""
    drawn, random = sample_capacity(name, dim=dim, query=query, rows=4096), np.random.default_rng(9)
    needle, off = query * math.sqrt(dim), 4.5 * math.hypot(0.5 / 64, 0.5 / 64)

    def share(n):
        hits = 0
        for _ in range(32):
            scores = np.sort(query * random.standard_normal((128, n)))[:, ::-1]
            scores = np.column_stack([np.full(128, needle), scores])
            if name == "sparsemax":  # max(s − τ, 0) of sum 1
                z = np.sort(scores)[:, ::-1]
                k = np.arange(1, n + 2)
                size = (1 + k * z > np.cumsum(z, axis=1)).sum(axis=1)[:, None]
                tau = (np.take_along_axis(np.cumsum(z, axis=1), size - 1, axis=1) - 1) / size
                weights = np.maximum(scores - tau, 0)
            else:  # softmax of the eight largest
                least = np.sort(scores)[:, ::-1][:, 7:8]
                weights = np.where(scores >= least, np.exp(scores - needle), 0)
            hits += (weights[:, 0] ** 2 > (weights[:, 1:] ** 2).sum(axis=1)).sum()
        return hits / 4096

    assert abs(share(round(drawn.value)) - 0.5) < off
    assert abs(share(round(1.3 * drawn.value)) - 0.5) > off


def test_what_maps_hold_is_below_the_needle_being_the_largest():
    """Under top-2 SNR > 1 is that event, n = ln ½/ln Φ(√d); softmax is top-k of every k ≥ n."""
    for d, t in ((8, 1.0), (16, 0.5), (36, 3.0)):
        most = math.log(2) / -float(log_ndtr(math.sqrt(d)))
        drawn = sample_capacity("topk:2", dim=d, query=t, rows=4096)
        assert abs(drawn.value - most) < 4 * drawn.stderr
        assert abs(drawn.value - 1.2 * most) > 4 * drawn.stderr
        held = sample_capacity("sparsemax", dim=d, query=t, rows=4096, seed=1).value
        assert 0.4 * most < held < most
    whole, top = (sample_capacity(name, dim=8, rows=4096, seed=2) for name in ("exp", "topk:400"))
    assert abs(whole.value - top.value) < 4 * math.hypot(whole.stderr, top.stderr)
    drawn = sample_capacity("sparsemax", dim=16, query=0.5, rows=4096)
    assert (drawn.value, drawn.stderr) == pytest.approx((10_900, 200), rel=0.03)  # docs/needle.md
    assert_rows_of_numpy_hold_as_many("topk:8", 16, 1.0)
    assert_rows_of_numpy_hold_as_many("sparsemax", 8, 1.0)
    for other in ("stick-breaking", "forgetting", "router:4"):
        with pytest.raises(InputError, match="choose a kernel or one of"):
            sample_capacity(other, dim=8)
    with pytest.raises(InputError, match="weighs more than 512 keys"):
        sample_capacity("sparsemax", dim=64, query=1e-2)


def test_whole_rows_say_what_maps_hold():
    """Half of the rows of n + 1 keys, all of them drawn, have SNR > 1; at 1.2 n fewer."""
    cells = (("sparsemax", 8, 1.0), ("entmax1.5", 8, 1.0), ("topk:8", 8, 1.4), ("topk:8", 16, 0.5))
    asked = {"of": "needle_snr_above:1", "rel_error": 1e-2, "seed": 5}
    rows, off = 4096, []
    for name, d, t in cells:
        held = sample_capacity(name, dim=d, query=t, rows=rows, seed=3).value
        row = Row(name, gamma=t, steps=(Needle(t * math.sqrt(d)),))
        for factor in (1.0, 1.2):
            found = sparsity.estimate(row, length=round(factor * held) + 1, **asked)
            off.append((found.value - 0.5) / math.hypot(found.stderr, 0.5 / math.sqrt(rows)))
    assert np.max(np.abs(off[::2])) < 4
    assert np.max(off[1::2]) < -4
    assert len(off) == 8


def test_the_factors_that_keep_n_eff():
    """Five factors of γ₀ = 3 and the ends of 2 and 4, computed apart to 1e-3."""
    found = [temperature.asked_factor(HONEST, 3.0, r) for r in (4, 16, 32, 64, 128)]
    assert found == pytest.approx([1.1517, 1.2905, 1.3559, 1.4191, 1.4802], abs=1e-4)
    for gamma, first, last in ((2.0, 1.2214, 1.6895), (4.0, 1.1249, 1.3971)):
        ends = [temperature.asked_factor(HONEST, gamma, r) for r in (4, 128)]
        assert ends == pytest.approx([first, last], abs=1e-4)


def test_ssmax_is_a_temperature():
    assert isinstance(ScalableSoftmax(), temperature.Temperature)


def test_a_wrong_signal_to_noise_is_rejected(monkeypatch):
    """Without the 2 of the difference of two means."""
    monkeypatch.setattr(routers, "snr", lambda d, B, margin, m: m * margin * math.sqrt(d / B))
    assert CLAIM["flashmoba-snr"].record()["verdict"] == "refuted"
